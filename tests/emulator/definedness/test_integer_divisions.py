"""Results of integer divisions by zero, where they are used."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.errors import KernelFault
from cupygemm.emulator.runtime.compile import compile_program

TYPES = {
    "i1": "signed char",
    "u2": "unsigned short",
    "i4": "int",
    "u4": "unsigned",
    "i8": "long long",
    "u8": "unsigned long long",
}
TARGETS = ("gfx90a", "gfx942", "gfx950")
KIND = "integer division by zero"
FAULTS = {
    "divides": "y[i] = x[i] / y[i]",
    "takes_the_rest": "y[i] = x[i] % y[i]",
    "divides_by_a_scalar": "y[i] = x[i] / n",
    "decides": "if (x[i] / y[i] > 3) y[i] = 1",
}
RIGHT = {
    "divides_under_a_condition": "T d = y[i]; y[i] = d ? x[i] / d : 0",
    "returns_before": "if (y[i] == 0) return; y[i] = x[i] / y[i] + x[i] % y[i]",
    "divides_by_an_odd_number": "y[i] = x[i] / (y[i] | 1)",
    "divides_by_a_constant": "y[i] = x[i] / 7",
}
FLOATS = r"""
extern "C" __global__ void floats(const float* x, float* y) {
    int i = threadIdx.x;
    y[i] = 1 / y[i] + x[i] / y[i] + __builtin_amdgcn_rcpf(y[i]) * 1.8446742e19f;
}
"""


@functools.cache
def code(target: str) -> bytes:
    kernels = [
        f'extern "C" __global__ void {name}_{short}({type_}* x, {type_}* y, {type_} n) {{\n'
        f"    typedef {type_} T;\n    int i = threadIdx.x;\n    {body};\n}}\n"
        for name, body in (FAULTS | RIGHT).items()
        for short, type_ in TYPES.items()
    ]
    return compile_program("".join(kernels), "divisions.hip", target_name=target).code


def run(name: str, short: str, target: str) -> None:
    """Divide by numbers of which the first is 0, in one lane."""
    large = 1 << 40 if short[1] == "8" else 100
    x, y = np.full(64, large, short), np.arange(64, dtype=short)
    emulator.launch(code(target), 1, 64, [x, y, np.dtype(short).type(0)], kernel=f"{name}_{short}")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("short", TYPES)
@pytest.mark.parametrize("name", FAULTS)
def test_a_result_that_is_used_is_found(name: str, short: str, target: str) -> None:
    with emulator.checks(integer_divisions="error"), pytest.raises(KernelFault) as caught:
        run(name, short, target)
    assert (caught.value.kind, caught.value.check) == (KIND, "integer_divisions")
    assert caught.value.lanes == (tuple(range(64)) if "scalar" in name else (0,))
    assert "divisions.hip:" in caught.value.detail, "the line of the division"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("short", TYPES)
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_have_no_finding(name: str, short: str, target: str) -> None:
    with emulator.checks(integer_divisions="error"):
        run(name, short, target)
    assert not emulator.last_launch().warnings


@pytest.mark.parametrize("target", TARGETS)
def test_divisions_of_floats_by_zero_are_right(target: str) -> None:
    code = compile_program(FLOATS, "floats.hip", target_name=target).code
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    with emulator.checks(integer_divisions="error"):
        emulator.launch(code, 1, 64, [x, y])
    assert np.isinf(y).all()


def test_an_undefined_quotient_keeps_its_cause_in_a_sum() -> None:
    """A scalar division goes through v_readfirstlane and the scalar ALU."""
    source = 'extern "C" __global__ void k(int* x, int n) { x[0] = (blockIdx.x + 77) / n + 5; }'
    code = compile_program(source, "k.hip", target_name="gfx942").code
    with emulator.checks(integer_divisions="error"), pytest.raises(KernelFault, match=KIND):
        emulator.launch(code, 1, 1, [np.zeros(1, np.int32), 0])
