"""printf in kernels: conversions as in C, lanes of a wave in order, the limits of the buffer."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy as cp
import pytest

from cupygemm.emulator import device_printf
from cupygemm.emulator.device_printf import formatted

CASES: list[tuple[str, list[Any]]] = [
    ("%d|%i|%5d|%-5d|%05d|%+d|% d|%.3d", [1, -2, 3, 4, 5, 6, 7, 8]),
    ("%u|%x|%X|%#x|%o|%#o|%#x|%#o", [2**32 - 1, 255, 255, 255, 8, 8, 0, 0]),
    ("%hhd|%hd|%hhu|%hu", [300, 70000, 300, 70000]),
    ("%ld|%lld|%lu|%llx|%zu|%jd", [-(2**40), -(2**63), 2**63, 2**63 + 1, 2**40, -1]),
    ("%f|%.2f|%8.3f|%-8.1f|%08.2f|%+f|%F", [1.5, 2.345, -3.25, 4.5, -5.5, 6.0, 7.0]),
    ("%e|%.3E|%g|%G|%g|%g|%#g", [12345.678, 0.00012, 1e-10, 1e20, 100000.0, 0.0001, 1.0]),
    ("%a|%A|%a", [1.5, -0.1, 0.0]),
    ("%f|%5.1f|%g|%F", [float("inf"), float("-inf"), float("nan"), float("inf")]),
    ("%c%c|%3c", [65, 98, 99]),
    ("%s|%5s|%-5s|%.2s|%s", ["one", "two", "three", "four", ""]),
    ("%*d|%-*d|%.*f|%*.*f", [5, 1, 4, 2, 3, 1.23456, 8, 2, 3.14159]),
    ("100%%|%d%%", [7]),
    ("no arguments", []),
]


def as_c_prints(text: str, values: list[Any]) -> str:
    arguments: list[Any] = []
    for value in values:
        if isinstance(value, int):
            arguments.append(ctypes.c_uint64(value & (2**64 - 1)))
        elif isinstance(value, float):
            arguments.append(ctypes.c_double(value))
        else:
            arguments.append(value.encode())
    room = ctypes.create_string_buffer(1000)
    ctypes.CDLL(None).snprintf(room, ctypes.c_size_t(1000), text.encode(), *arguments)
    return room.value.decode()


@pytest.mark.parametrize(("text", "values"), CASES)
def test_conversions_are_those_of_c(text: str, values: list[Any]) -> None:
    record = [text, *(v & (2**64 - 1) if isinstance(v, int) else v for v in values)]
    assert formatted(record) == as_c_prints(text, values)


def test_conversions_without_an_argument_stay() -> None:
    assert formatted(["%d %s %*d", 1]) == "1 %s %*d"
    assert formatted(["%p %p", 0, 4096]) == "0x0 0x1000"
    assert formatted(["[%s]", None]) == "[(null)]"


KERNEL = r"""
#include <cstdio>
enum color { red = 3 };
extern "C" __global__ void show(const float* x, const char* word, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 32 < n)
        printf("%d %.1f %s %s%c", i, x[i % 32], i % 2 ? "odd" : "even", word, 10);
}
extern "C" __global__ void kinds() {
    unsigned char small = 200;
    short negative = -5;
    int given = printf("%d %d %u %lld %g %d %d %zu %s|\n", small, negative, 4000000000u,
                       -5000000000ll, 0.5f, true, red, sizeof(int), (const char*)nullptr);
    printf("%d\n", given);
}
extern "C" __global__ void flood() {
    printf("%d: a line of some length that fills the buffer of the device\n", threadIdx.x);
}
extern "C" __global__ void fails(int* p) {
    printf("before\n");
    p[1 << 30] = 1;
}
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return cp.RawModule(code=KERNEL)


def test_lanes_and_workgroups_print_in_order(module: Any, capsys: Any) -> None:
    x = cp.arange(32, dtype=cp.float32)
    word = cp.array([*b"hello", 0], cp.uint8)
    module.get_function("show")((2,), (64,), (x, word, cp.int32(2)))
    cp.cuda.Device().synchronize()
    found = capsys.readouterr().out
    lanes = [0, 1, 32, 33, 64, 65, 96, 97]
    expected = [f"{i} {i % 32}.0 {'odd' if i % 2 else 'even'} hello\n" for i in lanes]
    assert sorted(found.splitlines(True)) == sorted(expected)
    first = [line for line in found.splitlines(True) if int(line.split()[0]) < 34]
    assert first == expected[:4], "the lanes of a wave print in their order"


def test_types_are_promoted(module: Any, capsys: Any) -> None:
    module.get_function("kinds")((1,), (1,), ())
    assert capsys.readouterr().out == "200 -5 4000000000 -5000000000 0.5 1 3 4 (null)|\n9\n"


def test_each_launch_prints_anew(module: Any, capsys: Any) -> None:
    for _ in range(3):
        module.get_function("kinds")((1,), (1,), ())
    assert capsys.readouterr().out.count("|") == 3


def test_a_full_buffer_says_so(module: Any, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(device_printf, "BYTES", 2048)
    fresh = cp.RawModule(code=KERNEL + "// with a buffer of its own")
    fresh.get_function("flood")((1,), (64,), ())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("0: a line")
    assert lines[-1] == "(printf: the buffer of 2048 bytes was full; what followed is lost)"
    assert 5 < len(lines) < 30
    fresh.get_function("kinds")((1,), (1,), ())
    assert capsys.readouterr().out.endswith("|\n9\n")


def test_what_was_printed_before_a_fault_is_shown(module: Any, capsys: Any) -> None:
    with pytest.raises(cp.cuda.driver.CUDADriverError):
        module.get_function("fails")((1,), (1,), (cp.zeros(4, cp.int32),))
    assert capsys.readouterr().out == "before\n"
