"""The stand-in libamdhip64, called through its C entry points as CuPy's modules call it."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from cupygemm.emulator import _session
from cupygemm.emulator.runtime import libraries
from cupygemm.emulator.runtime.hip import HipRuntime
from cupygemm.emulator.runtime.properties import (
    DeviceProperties,
    device_attribute,
    device_properties,
)
from cupygemm.emulator.runtime.status import Status
from cupygemm.emulator.targets import TARGETS

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


def text(hip: ctypes.CDLL, status: int) -> str:
    return bytes(hip.hipGetErrorString(status)).decode()


# -- the symbols that CuPy's wheel needs --


def needed_symbols() -> set[tuple[str, str, str]]:
    """Return library, version and name of every versioned symbol that the wheel's modules need."""
    import cupy

    found = set()
    for module in Path(cupy.__file__).parent.parent.glob("cupy*/**/*.so"):
        with module.open("rb") as file:
            elf = ELFFile(file)
            versions = {}
            needs = elf.get_section_by_name(".gnu.version_r")
            for need, auxiliaries in needs.iter_versions() if needs else ():
                versions |= {aux["vna_other"]: (need.name, aux.name) for aux in auxiliaries}
            table = elf.get_section_by_name(".gnu.version")
            for index, symbol in enumerate(elf.get_section_by_name(".dynsym").iter_symbols()):
                number = table.get_symbol(index)["ndx"] if table else None
                if symbol["st_shndx"] == "SHN_UNDEF" and number in versions:
                    found.add((*versions[number], symbol.name))
    return found


@pytest.mark.slow
def test_every_symbol_that_the_wheel_needs_is_there_in_its_version(cp: ModuleType) -> None:
    built = {library.soname: library for library in (libraries.HIP, *libraries.OTHERS)}
    needed = {entry for entry in needed_symbols() if entry[0] in built}
    offered = {
        (soname, function.node, function.name)
        for soname, library in built.items()
        for function in libraries.functions(library)
    }
    assert len(needed) > 80
    assert needed - offered == set()


@pytest.mark.parametrize(
    "library", [libraries.HIP, libraries.HIPRTC, *libraries.OTHERS], ids=lambda one: one.stem
)
def test_libraries_carry_their_names(library: libraries.Library) -> None:
    with libraries.build(library).open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags()
        assert [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"] == [library.soname]


def test_every_method_has_an_entry_point() -> None:
    listed = {function.name for function in libraries.functions(libraries.HIP)}
    callbacks = HipRuntime(_session._devices).callbacks(lambda *_: None)  # type: ignore[arg-type]
    assert set(callbacks) <= listed


# -- errors --


def test_an_unsupported_function_fails_with_its_name(hip: ctypes.CDLL) -> None:
    status = hip.hipIpcGetMemHandle(None, None)
    assert status == Status.NOT_SUPPORTED
    assert hip.hipGetErrorName(status) == b"hipErrorNotSupported"
    assert text(hip, status) == "the emulated device does not support hipIpcGetMemHandle"


def test_unsupported_functions_reach_the_user_by_name(cp: ModuleType) -> None:
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="hipIpcGetMemHandle"):
        cp.cuda.runtime.ipcGetMemHandle(cp.zeros(1).data.ptr)


def test_the_last_error_is_cleared_by_asking(hip: ctypes.CDLL) -> None:
    assert hip.hipSetDevice(5) == Status.INVALID_DEVICE
    assert hip.hipPeekAtLastError() == Status.INVALID_DEVICE
    assert hip.hipGetLastError() == Status.INVALID_DEVICE
    assert hip.hipGetLastError() == 0
    assert "device 5" in text(hip, Status.INVALID_DEVICE), "the message outlives the error"


def test_errors_belong_to_their_thread(hip: ctypes.CDLL) -> None:
    hip.hipSetDevice(5)
    seen = []
    thread = threading.Thread(
        target=lambda: seen.append((hip.hipGetLastError(), text(hip, Status.INVALID_DEVICE)))
    )
    thread.start()
    thread.join()
    assert seen == [(0, "invalid device ordinal")]
    hip.hipGetLastError()


def test_texts_without_a_message(hip: ctypes.CDLL) -> None:
    assert text(hip, 0) == "no error"
    assert text(hip, 12345) == "unknown error"
    assert hip.hipGetErrorName(2) == b"hipErrorOutOfMemory"


def test_a_bug_of_the_emulator_is_an_error_with_its_traceback(
    hip: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    messages = []
    runtime = HipRuntime(_session._devices)  # type: ignore[arg-type]
    monkeypatch.setattr(runtime, "hipDeviceSynchronize", broken)
    callbacks = runtime.callbacks(lambda status, message: messages.append((status, message)))
    assert callbacks["hipDeviceSynchronize"]() == Status.UNKNOWN
    assert messages[0][0] == Status.UNKNOWN
    assert "ZeroDivisionError: a bug" in messages[0][1]


# -- memory --


def test_copies_go_both_ways(hip: ctypes.CDLL, pointer: ctypes.c_void_p) -> None:
    source, back = ctypes.create_string_buffer(bytes(range(100)), 100), (ctypes.c_char * 100)()
    assert hip.hipMemcpy(pointer, source, ctypes.c_size_t(100), HOST_TO_DEVICE) == 0
    assert hip.hipMemset(pointer, 7, ctypes.c_size_t(10)) == 0
    assert hip.hipMemcpyAsync(back, pointer, ctypes.c_size_t(100), DEVICE_TO_HOST, None) == 0
    assert bytes(back) == b"\x07" * 10 + bytes(range(10, 100))


def test_a_copy_past_the_end_is_refused_and_told(
    hip: ctypes.CDLL, pointer: ctypes.c_void_p
) -> None:
    source = ctypes.create_string_buffer(1001)
    status = hip.hipMemcpy(pointer, source, ctypes.c_size_t(1001), HOST_TO_DEVICE)
    assert status == Status.INVALID_VALUE
    assert "copy to 1001 bytes at" in text(hip, status)
    assert "runs 1 bytes past it" in text(hip, status)
    status = hip.hipMemset(pointer, 0, ctypes.c_size_t(1001))
    assert (status, "fill of" in text(hip, status)) == (Status.INVALID_VALUE, True)


def test_a_host_pointer_is_no_device_pointer(hip: ctypes.CDLL) -> None:
    host = ctypes.create_string_buffer(10)
    status = hip.hipMemcpy(host, host, ctypes.c_size_t(10), HOST_TO_DEVICE)
    assert status == Status.INVALID_VALUE
    assert "not device memory" in text(hip, status)


def test_freeing_twice_is_refused(hip: ctypes.CDLL) -> None:
    pointer = ctypes.c_void_p()
    hip.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(10))
    assert hip.hipFree(pointer) == 0
    status = hip.hipFree(pointer)
    assert status == Status.INVALID_VALUE
    assert "was freed" in text(hip, status)
    assert hip.hipFree(None) == 0


def test_more_than_the_device_has_is_out_of_memory(cp: ModuleType) -> None:
    with pytest.raises(cp.cuda.memory.OutOfMemoryError):
        cp.empty(1 << 40, "u1")


def test_memory_info_counts_what_is_used(cp: ModuleType, hip: ctypes.CDLL) -> None:
    free, total = cp.cuda.runtime.memGetInfo()
    assert total == TARGETS[_session.target() or ""].memory_bytes
    assert 0 < free <= total


@pytest.mark.parametrize(
    ("allocator", "kind"), [("malloc", 2), ("hostAlloc", 1), ("mallocManaged", 3)]
)
def test_pointer_attributes_tell_the_kind(cp: ModuleType, allocator: str, kind: int) -> None:
    runtime = cp.cuda.runtime
    arguments = {"malloc": (64,), "hostAlloc": (64, 0), "mallocManaged": (64,)}[allocator]
    pointer = getattr(runtime, allocator)(*arguments)
    # CuPy's wheel confuses HIP's number for host memory (1) with that for device memory (2).
    assert runtime.pointerGetAttributes(pointer).type == {1: 2}.get(kind, kind)
    (runtime.freeHost if allocator == "hostAlloc" else runtime.free)(pointer)


def test_managed_memory_takes_advice_and_prefetches_that_exist(cp: ModuleType) -> None:
    memory = cp.cuda.malloc_managed(1024).mem
    memory.advise(1, cp.cuda.Device(0))
    memory.prefetch(cp.cuda.Stream(), device_id=-1)  # to the host
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="-1 is no hipMemoryAdvise"):
        memory.advise(-1, cp.cuda.Device(0))
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="the only one, 0"):
        memory.prefetch(cp.cuda.Stream(), device_id=7)


def test_managed_memory_is_refused_as_by_rocm(cp: ModuleType, pointer: ctypes.c_void_p) -> None:
    runtime, outside = cp.cuda.runtime, np.zeros(64)
    address = pointer.value or 0

    def refused(status: str, call: Any, *arguments: int) -> None:
        with pytest.raises(runtime.CUDARuntimeError, match=status):
            call(*arguments)

    refused("hipErrorInvalidValue: 0 bytes", runtime.mallocManaged, 0)
    refused("hipErrorInvalidValue: 64 bytes .* the flags 4", runtime.mallocManaged, 64, 4)
    refused("hipErrorInvalidValue: a prefetch of no", runtime.memPrefetchAsync, address, 0, 0, 0)
    refused("hipErrorInvalidValue: prefetch of", runtime.memPrefetchAsync, address, 1001, 0, 0)
    refused("XNACK", runtime.memPrefetchAsync, outside.ctypes.data, 64, 0, 0)
    refused("hipErrorInvalidValue: advice on no", runtime.memAdvise, address, 0, 3, 0)
    refused("hipErrorInvalidDevice", runtime.memAdvise, address, 1000, 3, 7)
    runtime.memAdvise(address, 1000, 1, 7)  # mostly read: of all devices


# -- the device --


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda one: one.name)
def test_attributes_agree_with_the_properties(target: Any) -> None:
    properties = device_properties(target)
    expected = {
        5: target.clock_mhz * 1000,
        23: properties.major,
        26: 1024,
        29: 2**31 - 1,
        56: 1024,
        61: properties.minor,
        63: target.num_cus,
        74: target.lds_bytes,
        87: 64,
    }
    assert {key: device_attribute(properties, key) for key in expected} == expected
    assert device_attribute(properties, 92) is None
    assert device_attribute(properties, 10018) is None
    assert properties.gcnArchName.decode() == f"{target.name}:sramecc+:xnack-"


def test_the_layout_of_the_properties() -> None:
    # Offsets from a C compiler for hip_runtime_api.h of ROCm 6 and 7.
    offsets = {"totalGlobalMem": 288, "warpSize": 308, "major": 360, "multiProcessorCount": 388}
    assert {name: getattr(DeviceProperties, name).offset for name in offsets} == offsets
    assert DeviceProperties.gcnArchName.offset == 1160
    assert ctypes.sizeof(DeviceProperties) == 1472


def test_an_unknown_attribute_is_an_invalid_value(hip: ctypes.CDLL) -> None:
    value = ctypes.c_int()
    assert hip.hipDeviceGetAttribute(ctypes.byref(value), 5000, 0) == Status.INVALID_VALUE


def test_there_is_one_device(cp: ModuleType) -> None:
    assert cp.cuda.runtime.getDeviceCount() == 1
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="the only one, 0"):
        cp.cuda.Device(1).use()
    assert cp.cuda.runtime.deviceCanAccessPeer(0, 0) == 0
    bus = cp.cuda.Device(0).pci_bus_id
    assert cp.cuda.Device.from_pci_bus_id(bus).id == 0


# -- streams and events --


def test_events_measure_time_and_streams_order_work(cp: ModuleType) -> None:
    stream, start, stop = cp.cuda.Stream(non_blocking=True), cp.cuda.Event(), cp.cuda.Event()
    start.record(stream)
    with stream:
        doubled = cp.arange(1000) * 2
    stop.record(stream)
    stop.synchronize()
    assert start.done
    assert stream.done
    assert cp.cuda.get_elapsed_time(start, stop) > 0
    assert int(doubled[-1]) == 1998


@pytest.mark.parametrize(("asked", "given"), [(0, 0), (-1, -1), (-3, -1), (9, 1)])
def test_priorities_are_clamped_to_what_the_device_has(
    cp: ModuleType, asked: int, given: int
) -> None:
    assert cp.cuda.Stream(priority=asked).priority == given


def test_callbacks_are_called(cp: ModuleType) -> None:
    called: list[Any] = []
    stream = cp.cuda.Stream()
    stream.add_callback(lambda _, status, argument: called.append((status, argument)), 1)
    stream.launch_host_func(called.append, 2)
    stream.synchronize()
    assert called == [(0, 1), 2]


def test_a_destroyed_stream_or_event_is_told(hip: ctypes.CDLL) -> None:
    for kind in ("Stream", "Event"):
        handle = ctypes.c_void_p()
        assert getattr(hip, f"hip{kind}Create")(ctypes.byref(handle)) == 0
        assert getattr(hip, f"hip{kind}Synchronize")(handle) == 0
        assert getattr(hip, f"hip{kind}Destroy")(handle) == 0
        status = getattr(hip, f"hip{kind}Synchronize")(handle)
        assert status == Status.INVALID_HANDLE
        assert "does not exist" in text(hip, status)


def test_an_event_that_was_not_recorded_has_no_time(cp: ModuleType) -> None:
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="has not been recorded"):
        cp.cuda.get_elapsed_time(cp.cuda.Event(), cp.cuda.Event())
    silent = cp.cuda.Event(disable_timing=True)
    silent.record()
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="without timing"):
        cp.cuda.get_elapsed_time(silent, silent)


def test_arrays_that_outlive_the_modules_are_dropped_silently(
    run_python: Callable[..., Any],
) -> None:
    """At the interpreter's exit, arrays in a cache are dropped last."""
    script = "import cupygemm, cupy, numpy; numpy.kept = [cupy.zeros(9)]; numpy.kept += [numpy]"
    done = run_python(script, target="gfx942", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_array_in_a_cycle_of_garbage_is_valid_in_a_destructor(cp: ModuleType) -> None:
    values = []

    class Node:
        def __init__(self) -> None:
            self.own, self.array = self, cp.arange(3)

        def __del__(self) -> None:
            values.append(self.array.get().tolist())

    Node()
    gc.collect()
    assert values == [[0, 1, 2]]
