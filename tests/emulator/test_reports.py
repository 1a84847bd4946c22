"""What a report says beside what is wrong: the source line, and the argument concerned."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cupygemm import emulator

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
    assert fault.detail.splitlines()[-1] == "argument 1 (y) points into it"
    assert fault.source is None


def test_a_pointer_inside_an_argument_is_found(cp: ModuleType) -> None:
    data = cp.zeros(64, "f4")
    view = np.zeros((), np.dtype([("rows", "i4"), ("data", "u8")], align=True))
    view["data"] = data.data.ptr
    fault = fault_of(cp, "by_value", (cp.zeros(1, "f4"), view))
    assert fault.detail.splitlines()[-1].endswith("points into it, at its byte 8")


def test_the_source_line_is_named(cp: ModuleType) -> None:
    fault = fault_of(cp, "past_the_end", (cp.zeros(64, "f4"), cp.zeros(64, "f4")), options=("-g",))
    assert fault.source is not None
    assert fault.source[1] == 5
    file = Path(fault.source[0])
    assert f"  {file}:5" in str(fault).splitlines()


def test_a_call_of_the_host_is_suspected(cp: ModuleType) -> None:
    """As HIP's printf and assert: through a buffer that the hidden arguments point to."""
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
    # A null pointer of a kernel that calls nobody.
    with pytest.raises(RuntimeError, match="out-of-bounds global read") as raised:
        cp.RawKernel(SOURCE, "past_the_end")((1,), (64,), (np.uintp(0), x))
    assert "host?" not in str(raised.value)


def test_an_instruction_before_the_entry_has_a_negative_offset() -> None:
    fault = emulator.KernelFault("k", (), -1, -1, -0x10, "s_nop 0", "kind", "")
    assert "at pc -0x10: s_nop 0" in str(fault)
