"""Elements of variables of a module are named by the symbol table, the source and DWARF."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from cupygemm import emulator
from cupygemm.emulator.code_object import load
from cupygemm.emulator.code_object.module_variables import module_variables, variable_at
from cupygemm.emulator.device import Memory
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = """
#define COLUMNS 8
struct Pair { int first; float rest[6]; };
namespace deep { __device__ Pair pairs[3]; static __device__ short hidden[8]; }
__constant__ float table[4][COLUMNS];
__device__ double single;
__device__ int scratch[128];
typedef float (*function)(float);
__device__ float twice(float x) { return 2 * x; }
__device__ function table_of[2] = {twice, twice};
extern "C" __global__ void k(int* x, int i) {
    x[threadIdx.x] = deep::pairs[i].first + deep::hidden[i] + (int)table[i][i] + (int)single;
    deep::hidden[i] = scratch[i] + (int)table_of[i](1);
}
extern "C" __global__ void races(int* x) {
    scratch[5] = blockIdx.x;
    x[threadIdx.x] = scratch[5];
}
"""
PLACES = [  # a variable, a byte of it, and its names without types, from source, and from DWARF
    ("table", 44, "table[1][3] of the module's variable float table[4][8] (128 bytes)", ""),
    ("single", 0, "single of the module's variable double single (8 bytes)", ""),
    ("scratch", 508, "scratch[127] of the module's variable int scratch[128] (512 bytes)", ""),
    ("scratch", 510, "byte 2 of scratch[127] of the module's", "scratch[127] of"),
    ("hidden", 6, "hidden[3] of the module's variable short hidden[8] (16 bytes)", ""),
    (
        "pairs",
        40,
        "byte 12 of pairs[1] of the module's variable Pair pairs[3] (84",
        "pairs[1].rest[2]",
    ),
    ("table_of", 8, "table_of[1] of the module's variable function table_of[2] (16 bytes)", ""),
]


@pytest.mark.slow
@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_elements_are_named(target: str, debug: bool) -> None:
    options = ["-g"] if debug else []
    code = compile_program(SOURCE, "a.hip", target_name=target, options=options).code
    found = load(code, Memory())
    start = {each.name: each.address for each in module_variables(found)}
    assert set(start) == {"table", "single", "scratch", "hidden", "pairs", "table_of"}
    for name, byte, from_source, from_types in PLACES:
        text = variable_at(found, start[name] + byte)
        assert text.startswith(from_types if debug and from_types else from_source), text
    assert variable_at(found, min(start.values()) - 4096) == ""


def without_source(code: bytes) -> bytes:
    """Return a code object whose section with the program is not found."""
    return code.replace(b".cupygemm.source", b".cupygemm.nothing"[:16])


@pytest.fixture
def races() -> Iterator[bytes]:
    return compile_program(SOURCE, "a.hip", target_name="gfx942").code


def race(code: bytes) -> str:
    with pytest.raises(emulator.KernelFault) as caught:
        emulator.launch(code, 2, 64, [np.zeros(64, np.int32)], kernel="races")
    return caught.value.detail


def test_a_race_names_its_element(races: bytes) -> None:
    assert (
        "4 bytes, scratch[5] of the module's variable int scratch[128] (512 bytes),\nwhich"
        in race(races)
    )


def test_without_source_a_race_names_its_variable(races: bytes) -> None:
    assert "4 bytes, byte 20 of scratch of the module's variable scratch (512 bytes)" in race(
        without_source(races)
    )
