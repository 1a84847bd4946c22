"""Further facts in a report: the source line, and the argument concerned."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.code_object import Argument, CodeObject
from cupygemm.emulator.concurrency.stream_races import StreamRace
from cupygemm.emulator.device import Memory
from cupygemm.emulator.errors import ArgumentFault, EmulatorError
from cupygemm.emulator.host_libraries.memory import HostCallFault
from cupygemm.emulator.run import launch
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.waves.reports import argument_near
from tests.emulator.assembly import load_kernel

SOURCE = """\
struct View { int rows; float* data; };
extern "C" __global__ void past_the_end(const float* x, float* y) {
    int i = threadIdx.x;
    float value = x[i];
    y[i + 1] = value;
}
extern "C" __global__ void by_value(float* x, View view) {
    view.data[-1 - (int)threadIdx.x] = x[0];
}
"""


def fault_of(cp: ModuleType, name: str, arguments: tuple, **options) -> emulator.KernelFault:
    module = cp.RawModule(code=SOURCE, **options)
    with pytest.raises(RuntimeError, match="out-of-bounds global write"):
        module.get_function(name)((1,), (64,), arguments)
    fault = emulator.last_fault()
    assert isinstance(fault, emulator.KernelFault)
    return fault


def test_the_argument_is_named(cp: ModuleType) -> None:
    fault = fault_of(cp, "past_the_end", (cp.zeros(64, "f4"), cp.zeros(64, "f4")))
    assert fault.lane == 63
    assert "0 bytes past the end of allocation" in fault.detail
    assert fault.detail.splitlines()[-1] == "argument 1 (y) points into it: float32 (64,)"
    assert fault.source == ("kernel.cu", 5)


def test_a_pointer_inside_an_argument_is_found(cp: ModuleType) -> None:
    data = cp.zeros(64, "f4")
    view = np.zeros((), np.dtype([("rows", "i4"), ("data", "u8")], align=True))
    view["data"] = data.data.ptr
    fault = fault_of(cp, "by_value", (cp.zeros(1, "f4"), view))
    last = fault.detail.splitlines()[-1]
    assert last.endswith("points into it, at its byte 8: float32 (64,)")


@pytest.mark.parametrize(
    ("gib", "element", "expected"),
    [
        (3, 1, "2^32 elements of 1 byte further, the address is inside what argument 1 (x) points"),
        (12, 4, "2^32 elements of 4 bytes further"),
        (3, 4, None),  # 32 bits reach all elements of the array
    ],
)
def test_an_index_of_32_bits_that_overflows_is_named(
    gib: int, element: int, expected: str | None
) -> None:
    start, index = 1 << 40, (5 << 29) + 7
    extent = SimpleNamespace(start=start, end=start + (gib << 30))
    near = SimpleNamespace(start=start + (1 << 39), end=start + (1 << 39) + 256)
    memory = SimpleNamespace(
        nearest=lambda at: extent if extent.start <= at < extent.end else near,
        dangling=lambda _: None,
        owns=lambda _: False,
    )
    state = SimpleNamespace(
        memory=memory,
        arguments=b"".join(each.to_bytes(8, "little") for each in (near.start, start)),
        kernel=SimpleNamespace(
            explicit_arguments=[
                Argument("n", 0, 8, "global_buffer"),
                Argument("x.coerce", 8, 8, "global_buffer"),
            ]
        ),
    )
    said = argument_near(state, start + element * (index - (1 << 32)))
    assert said is None if expected is None else said is not None and expected in said
    assert argument_near(state, start - 4) is None


SAME = 'extern "C" __global__ void same(float* x, int at) { x[at] = blockIdx.x; }'


@pytest.mark.parametrize(
    ("view", "at", "element"),
    [
        ((slice(None),), 3 * 16 + 7, "[3, 7] of float32 (8, 16)"),
        ((slice(2, 3),), 5, "[0, 5] of float32 (1, 16)"),
        ((5, slice(None, None, 3)), 6, "[2] of float32 (6,) with strides (12,)"),
        ((slice(None, None, -1),), -16, "[1, 0] of float32 (8, 16) with strides (-64, 4)"),
        ((5, slice(None, None, 3)), 5, "[5, 5] of float32 (8, 16)"),
    ],
)
def test_the_element_is_named(cp: ModuleType, view: tuple, at: int, element: str) -> None:
    x = cp.zeros((8, 16), "f4")
    part = x[view]
    with (
        emulator.checks(argument_views="off"),
        pytest.raises(RuntimeError, match="global race") as raised,
    ):
        cp.RawKernel(SAME, "same")((2,), (1,), (part, np.int32(at)))
    last = str(raised.value).splitlines()[-1]
    assert last == f"  argument 0 (x) points into it: element {element}"


def test_the_source_line_is_named(cp: ModuleType) -> None:
    fault = fault_of(cp, "past_the_end", (cp.zeros(64, "f4"), cp.zeros(64, "f4")), options=("-g",))
    assert fault.source is not None
    assert fault.source[1] == 5
    file = Path(fault.source[0])
    (line,) = (line for line in str(fault).splitlines() if line.startswith(f"  {file}:5: "))
    assert line.partition(": ")[2] == SOURCE.splitlines()[4].strip()


def test_what_cupy_generates_has_no_lines(cp: ModuleType) -> None:
    with emulator.profile() as profile:
        cp.zeros(8, "f4") + 1
    assert not any(inst.source for inst in profile.kernels[0].instructions)


def test_the_line_that_calls_a_function_of_hip_is_named(cp: ModuleType) -> None:
    """`atomicAdd` was inlined, and its line in a header does not help the kernel's author."""
    add = cp.RawKernel(
        """extern "C" __global__ void add(int* x) {
            int i = threadIdx.x;
            atomicAdd(x + i, 1);
        }""",
        "add",
    )
    with pytest.raises(RuntimeError, match=r"\n  kernel.cu:3: atomicAdd\(x \+ i, 1\);\n  address"):
        add((1,), (64,), (cp.zeros(60, "i4"),))


def test_a_call_of_the_host_is_suspected(cp: ModuleType) -> None:
    """HIP's printf and assert use a buffer to which the hidden arguments point."""
    source = """
    extern "C" __global__ void ask(unsigned long long* x, unsigned long long* const* hidden) {
        const char* all = (const char*)__builtin_amdgcn_implicitarg_ptr();
        if (!hidden) hidden = (unsigned long long* const*)(all + 80);
        x[0] = hidden[0][3];
    }"""
    ask = cp.RawKernel(source, "ask")
    x = cp.zeros(4, "u8")
    with pytest.raises(RuntimeError, match=r"address 0x18\n(.*\n)*.*call of the host.*printf"):
        ask((1,), (1,), (x, np.uintp(0)))
    # A null pointer in a kernel without calls.
    with pytest.raises(RuntimeError, match="out-of-bounds global read") as raised:
        cp.RawKernel(SOURCE, "past_the_end")((1,), (64,), (np.uintp(0), x.view("f4")))
    assert "host?" not in str(raised.value)
    assert str(raised.value).splitlines()[-2:] == [
        "  4 bytes at 0x0: a null pointer",
        "  argument 0 (x) is null",
    ]


def test_an_address_that_no_allocation_is_near_is_blamed_on_no_argument(cp: ModuleType) -> None:
    kernel, x = cp.RawKernel(SOURCE, "past_the_end"), cp.zeros(64, "f4")
    for address, told in ((8, "8 bytes past a null pointer"), (1 << 40, "not device memory")):
        with pytest.raises(RuntimeError, match=told) as raised:
            kernel((1,), (64,), (np.uintp(address), x))
        assert "points into" not in str(raised.value)


def test_an_instruction_before_the_entry_has_a_negative_offset() -> None:
    fault = emulator.KernelFault(
        kernel="k",
        workgroup=(),
        wave=-1,
        lane=-1,
        pc=-0x10,
        instruction="s_nop 0",
        kind="kind",
        detail="",
    )
    assert "at pc -0x10: s_nop 0" in str(fault)


@pytest.mark.parametrize(
    "fault",
    [
        emulator.KernelFault("k", (1, 0, 0), 2, 3, 4, "s_nop 0", "kind", "detail", lanes=(3, 5)),
        ArgumentFault("text", "arguments"),
        StreamRace("kind", "copy", 64, "detail"),
        HostCallFault("gemm", "a", "kind", "detail", 64),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_fault_comes_back_from_another_process(fault: EmulatorError) -> None:
    fault.add_note("a note")
    again = pickle.loads(pickle.dumps(fault))
    assert type(again) is type(fault)
    assert str(again) == str(fault)
    assert vars(again) == vars(fault)


def located(functions: list[tuple[int, int, str]], pc: int) -> tuple[str, int]:
    return CodeObject("gfx942", 0, b"", functions=functions).locate(pc)


def test_a_function_without_a_size_extends_to_the_next() -> None:
    """Symbols of assembly files without ``.size`` have no size."""
    assert located([(0x100, 0, "k")], 0x1C78) == ("k", 0x1B78)
    assert located([(0x100, 0, "k"), (0x400, 0, "m")], 0x3FC) == ("k", 0x2FC)
    assert located([(0x100, 0, "k"), (0x400, 0, "m")], 0x400) == ("m", 0)
    assert located([(0x100, 0, "k"), (0x400, 0, "m")], 0x80) == ("", 0x80)
    assert located([(0x100, 0, "k"), (0x400, 8, "m")], 0x408) == ("", 0x408)
    assert located([(0x100, 0x400, "k"), (0x200, 8, "inner")], 0x300) == ("k", 0x200)
    assert located([(0x100, 0, "label"), (0x100, 64, "k")], 0x104) == ("k", 4)


UNSIZED = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
s_nop 0
v_mov_b32 v2, s4
"""


@pytest.mark.parametrize("typed", [True, False])
def test_offsets_in_assembly_without_sizes_are_relative_to_the_kernel(typed: bool) -> None:
    kernel = load_kernel(UNSIZED, Memory(), arguments=[8], sized=False, typed=typed)
    with pytest.raises(emulator.KernelFault) as raised:
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, [bytes(8)], Memory(), TARGETS["gfx942"])
    assert raised.value.kind == "read before wait"
    assert raised.value.pc == 0xC
    assert raised.value.detail.splitlines()[-1].startswith("  +0x0: s_load_dwordx2")


def test_a_jump_before_the_code_has_a_negative_address() -> None:
    kernel = load_kernel("s_branch 0x8000\ns_endpgm", Memory())
    with pytest.raises(emulator.KernelFault, match="wild jump") as raised:
        launch(kernel, (1, 1, 1), (64, 1, 1), 0, [], Memory(), TARGETS["gfx942"])
    assert "the program counter -0x1" in raised.value.detail
    assert "0x-" not in str(raised.value)
