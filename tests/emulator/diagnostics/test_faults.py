"""Seeded faults: reports have all facts that a user needs, by launch and by CuPy."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm.emulator.code_object import load
from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS

SOURCE = Path(__file__).with_name("faults.hip")
TARGET = "gfx942"
THREADS = 128


def code_object(edit: Callable[[str], str] = str) -> Path:
    """Compile the kernels, with their assembly changed by `edit`."""
    toolchain = find_toolchain()
    prelude = SOURCE.parents[2] / "hip" / "prelude.hpp"

    def to_assembly(output: Path) -> None:
        toolchain.compile_to_assembly(SOURCE, output, target=TARGET)

    texts = [SOURCE.read_text(), prelude.read_text(), toolchain.version]
    assembly = get_or_build("test-faults", texts, ".s", to_assembly).read_text()
    text = edit(assembly)

    def build(output: Path) -> None:
        changed = output.with_suffix(".changed.s")
        changed.write_text(text)
        toolchain.assemble(changed, output, target=TARGET)
        changed.unlink()

    return get_or_build("test-faults", [text, toolchain.version], ".hsaco", build)


def without(instruction: str, number: int = 0) -> Callable[[str], str]:
    """Return an edit that removes the `number`-th instruction of a kind from `reverse`."""

    def edit(assembly: str) -> str:
        start = assembly.index("\nreverse:")
        end = assembly.index("s_endpgm", start)
        found = list(
            re.finditer(rf"^\t{re.escape(instruction)}\n", assembly[start:end], re.MULTILINE)
        )
        place = found[number]
        return assembly[: start + place.start()] + assembly[start + place.end() :]

    return edit


@dataclass(frozen=True)
class Reported:
    """A fault as it arrived: the exception's text and the fault itself."""

    text: str
    fault: KernelFault
    buffers: list[int]


def by_launch(path: Path, kernel: str, blocks: int, arguments: list[Any]) -> Reported:
    """Run a kernel on the emulator directly; an array is copied to device memory."""
    memory = Memory()
    code = load(path.read_bytes(), memory, TARGET)
    buffers, values = [], []
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            address = memory.malloc(argument.nbytes, tag=f"buffer {len(buffers)}")
            memory.write(address, argument.tobytes())
            buffers.append(address)
            values.append(np.uint64(address).tobytes())
        else:
            values.append(argument.tobytes())
    with pytest.raises(KernelFault) as caught:
        launch(
            code.kernels[kernel],
            (blocks, 1, 1),
            (THREADS, 1, 1),
            0,
            values,
            memory,
            TARGETS[TARGET],
        )
    return Reported(str(caught.value), caught.value, buffers)


def by_cupy(cp: ModuleType, path: Path, kernel: str, blocks: int, arguments: list[Any]) -> Reported:
    """Run a kernel through CuPy's RawModule."""
    values = [cp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    function = cp.RawModule(path=str(path)).get_function(kernel)
    with pytest.raises(cp.cuda.driver.CUDADriverError) as caught:
        function((blocks,), (THREADS,), tuple(values))
    fault = emulator.last_fault()
    assert isinstance(fault, KernelFault)
    text = str(caught.value).removeprefix("hipErrorLaunchFailure: ")
    return Reported(text, fault, [v.data.ptr for v in values if isinstance(v, cp.ndarray)])


def reports(path: Path, kernel: str, arguments: list[Any], *, blocks: int = 2) -> list[Reported]:
    """Run a kernel every way that this session can, and check that the report says where."""
    found = [by_launch(path, kernel, blocks, arguments)]
    if emulator.is_enabled() and emulator.target() == TARGET:
        import cupy

        found.append(by_cupy(cupy, path, kernel, blocks, arguments))
    for reported in found:
        fault = reported.fault
        assert fault.kernel == kernel
        where = f"kernel {kernel}, workgroup ({', '.join(map(str, fault.workgroup))})"
        assert f"{where}, wave {fault.wave}" in reported.text
        assert f"at pc +0x{fault.pc:x}: {fault.instruction}" in reported.text
        assert reported.text.startswith(fault.kind)
    return found


X = np.arange(2 * THREADS, dtype=np.uint32)


def test_the_kernel_is_right_before_it_is_changed() -> None:
    memory = Memory()
    code = load(code_object().read_bytes(), memory, TARGET)
    addresses = [memory.malloc(X.nbytes) for _ in range(2)]
    memory.write(addresses[0], X.tobytes())
    values = [np.uint64(address).tobytes() for address in addresses]
    launch(code.kernels["reverse"], (2, 1, 1), (128, 1, 1), 0, values, memory, TARGETS[TARGET])
    out = np.frombuffer(memory.read(addresses[1], X.nbytes), np.uint32)
    np.testing.assert_array_equal(out.reshape(2, 128), X.reshape(2, 128)[:, ::-1])


def test_missing_wait_for_memory() -> None:
    path = code_object(without("s_waitcnt vmcnt(0)"))
    for reported in reports(path, "reverse", [X, X]):
        fault = reported.fault
        assert fault.kind == "read before wait"
        assert fault.instruction.startswith("ds_write_b32")
        assert "is read while its load is in flight: no s_waitcnt vmcnt covers" in fault.detail
        assert re.search(r"\+0x[0-9a-f]+: global_load_dword v\d+", fault.detail)


def test_missing_wait_before_the_barrier() -> None:
    path = code_object(without("s_waitcnt lgkmcnt(0)", 1))
    for reported in reports(path, "reverse", [X, X]):
        fault = reported.fault
        assert fault.kind == "LDS race: read after another wave's write"
        assert fault.instruction.startswith("ds_read_b32")
        assert re.search(r"wave \d reads 4 bytes of LDS at 0x[0-9a-f]+", fault.detail)
        assert re.search(r"wave \d wrote at\n *\+0x[0-9a-f]+: ds_write_b32", fault.detail)
        assert "has passed an s_barrier since, without having waited for that write" in fault.detail
        assert "put s_waitcnt lgkmcnt(0) before its barrier" in fault.detail


def test_missing_wait_for_lds() -> None:
    path = code_object(without("s_waitcnt lgkmcnt(0)", 2))
    for reported in reports(path, "reverse", [X, X]):
        fault = reported.fault
        assert fault.kind == "read before wait"
        assert fault.instruction.startswith("global_store_dword")
        assert "no s_waitcnt lgkmcnt covers" in fault.detail


def test_missing_barrier() -> None:
    path = code_object(without("s_barrier"))
    for reported in reports(path, "reverse", [X, X]):
        fault = reported.fault
        assert fault.kind == "LDS race: read after another wave's write"
        assert fault.instruction.startswith("ds_read_b32")
        assert fault.address is not None
        assert f"address 0x{fault.address:x}" in reported.text
        assert 0 <= fault.lane < 64
        assert "then an s_barrier, must come between the two" in fault.detail
        assert "has passed" not in fault.detail


def test_store_out_of_bounds() -> None:
    for reported in reports(code_object(), "store_past_end", [X, np.int32(12)]):
        fault = reported.fault
        assert fault.kind == "out-of-bounds global write"
        # 12 elements on, the last 12 of the second block's threads are outside: lanes 52 to 63.
        assert (fault.workgroup, fault.wave, fault.lane) == ((1, 0, 0), 1, 52)
        assert fault.lanes == tuple(range(52, 64))
        assert "wave 1, lanes 52-63" in reported.text
        assert fault.address == reported.buffers[0] + X.nbytes
        assert f"address 0x{fault.address:x}" in reported.text
        assert fault.instruction.startswith("global_store_dword")
        assert "0 bytes past the end of allocation" in fault.detail
        assert f"{X.nbytes} bytes" in fault.detail


def test_store_far_out_of_bounds() -> None:
    for reported in reports(code_object(), "store_past_end", [X, np.int32(-50)]):
        fault = reported.fault
        assert (fault.workgroup, fault.wave, fault.lane) == ((0, 0, 0), 0, 0)
        assert fault.address == reported.buffers[0] - 200
        assert re.search(r"\b(200|196) bytes before the start of allocation", fault.detail)


def test_uninitialised_lds() -> None:
    for reported in reports(code_object(), "uninitialised_lds", [X]):
        fault = reported.fault
        assert fault.kind == "uninitialised LDS"
        assert (fault.workgroup, fault.wave, fault.lane, fault.address) == ((0, 0, 0), 0, 1, 4)
        assert fault.lanes == tuple(range(1, 64, 2))
        assert fault.instruction.startswith("global_store_dword")
        assert re.search(r"\+0x[0-9a-f]+: ds_read_b32", fault.detail)
        assert "address 0x4" in reported.text


def test_lds_out_of_range() -> None:
    for reported in reports(code_object(), "lds_out_of_range", [X, np.int32(20)]):
        fault = reported.fault
        assert fault.kind == "out-of-bounds LDS read"
        assert (fault.workgroup, fault.wave, fault.lane) == ((0, 0, 0), 1, 44)
        assert fault.address == 512
        assert fault.instruction.startswith("ds_read_b32")
        assert "512 bytes" in fault.detail
        assert "shared_mem" not in fault.detail, "all of it is the kernel's own"


def test_divergent_barrier() -> None:
    for reported in reports(code_object(), "divergent_barrier", [X]):
        fault = reported.fault
        assert fault.kind == "divergent barrier"
        assert fault.instruction == "s_barrier"
        assert (fault.workgroup, fault.wave) == ((0, 0, 0), 0)
        assert "waves [0] of the workgroup wait at the barrier" in fault.detail
        assert "waves [1] have ended without reaching it" in fault.detail


def test_uninitialised_register() -> None:
    for reported in reports(code_object(), "uninitialised_register", [X]):
        fault = reported.fault
        assert fault.kind == "uninitialised register"
        assert fault.instruction.startswith("global_store_dword")
        assert "v77, which nothing has written" in fault.detail


def test_use_after_free() -> None:
    memory = Memory()
    code = load(code_object().read_bytes(), memory, TARGET)
    kept, freed = memory.malloc(X.nbytes, tag="kept"), memory.malloc(X.nbytes, tag="input")
    memory.free(freed)
    values = [np.uint64(address).tobytes() for address in (freed, kept)]
    with pytest.raises(KernelFault) as caught:
        launch(code.kernels["load_all"], (2, 1, 1), (128, 1, 1), 0, values, memory, TARGETS[TARGET])
    fault = caught.value
    assert fault.kind == "out-of-bounds global read"
    assert (fault.workgroup, fault.wave, fault.lane, fault.address) == ((0, 0, 0), 0, 0, freed)
    assert "(input)" in fault.detail
    assert fault.detail.endswith("argument 0 points into what was freed")
