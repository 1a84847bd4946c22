"""The stand-in hipFFT: `cupy.fft` against NumPy, and plans as C makes them."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.emulator.host_libraries.calls import NULL, Library, operand

RNG = np.random.default_rng(13)
R2C, C2R, C2C, D2Z, Z2D, Z2Z = 0x2A, 0x2C, 0x29, 0x6A, 0x6C, 0x69
COMPLEX = ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "hfft", "irfft", "irfft2", "irfftn")
REAL = ("fft", "rfft", "rfft2", "rfftn", "ihfft")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_transforms(cp: ModuleType, dtype: str) -> None:
    array = operand(RNG, (3, 6, 5), dtype)
    on_device = cp.asarray(array)
    eps = 60 * np.finfo(dtype).eps
    for name in COMPLEX if np.dtype(dtype).kind == "c" else REAL:
        one = not name.endswith(("2", "n"))
        options: list[dict[str, Any]] = (
            [{}, {"axis": 0}, {"axis": 1, "n": 4}, {"n": 9}, {"norm": "ortho"}]
            if one
            else [{}, {"s": (3, 4), "axes": (1, 0)}, {"norm": "forward"}]
        )
        for keywords in options:
            found = getattr(cp.fft, name)(on_device, **keywords)
            expected = getattr(np.fft, name)(array, **keywords)
            np.testing.assert_allclose(found.get(), expected, rtol=eps, atol=eps, err_msg=name)


def plan_of(library: Library, make: str, *arguments: Any) -> ctypes.c_void_p:
    plan = library.handle("hipfftCreate")
    size = np.full(1, 99, np.uint64)
    assert getattr(library, make)(plan, *arguments, size) == 0
    assert size[0] == 0, "no work area is needed"
    return plan


def test_a_transform_is_not_scaled(cp: ModuleType) -> None:
    library = Library("libhipfft.so.0")
    plan = plan_of(library, "hipfftMakePlan1d", 8, C2C, 2)
    values = operand(RNG, (2, 8), "c8")
    array = cp.asarray(values)
    assert library.hipfftExecC2C(plan, array, array, -1) == 0
    np.testing.assert_allclose(array.get(), np.fft.fft(values), rtol=1e-5, atol=1e-5)
    assert library.hipfftExecC2C(plan, array, array, 1) == 0
    np.testing.assert_allclose(array.get(), 8 * values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [6, 7])
def test_real_transforms_in_place_have_padded_rows(cp: ModuleType, n: int) -> None:
    library = Library("libhipfft.so.0")
    values = operand(RNG, (3, n), "f8")
    width = n // 2 + 1
    rows = np.full((3, 2 * width), np.nan)
    rows[:, :n] = values
    array = cp.asarray(rows)
    plan = plan_of(library, "hipfftMakePlan1d", n, D2Z, 3)
    assert library.hipfftExecD2Z(plan, array, array) == 0
    np.testing.assert_allclose(array.get().view("c16"), np.fft.rfft(values), atol=1e-12)
    plan = plan_of(library, "hipfftMakePlan1d", n, Z2D, 3)
    assert library.hipfftExecZ2D(plan, array, array) == 0
    np.testing.assert_allclose(array.get()[:, :n], n * values, atol=1e-12)


def test_an_advanced_layout(cp: ModuleType) -> None:
    """Transforms along the first axis of (4, 6, 3), of every second column only."""
    library = Library("libhipfft.so.0")
    values = operand(RNG, (4, 6, 3), "c16")
    array, out = cp.asarray(values), cp.full((6, 4), np.nan, np.complex128)
    lengths, embed, out_embed = (np.array(each, np.int32) for each in ([4], [4], [4]))
    plan = plan_of(library, "hipfftMakePlanMany", 1, lengths, embed, 18, 3, out_embed, 1, 4, Z2Z, 6)
    assert library.hipfftExecZ2Z(plan, array, out, -1) == 0
    np.testing.assert_allclose(out.get(), np.fft.fft(values[:, :, 0], axis=0).T, atol=1e-12)
    assert (array.get() == values).all()


def test_statuses(cp: ModuleType) -> None:
    library = Library("libhipfft.so.0")
    array, size = cp.ones(8, np.complex64), np.zeros(1, np.uint64)
    plan = library.handle("hipfftCreate")
    assert library.hipfftExecC2C(plan, array, array, -1) == 1, "no plan was made"
    assert library.hipfftMakePlan1d(plan, 0, C2C, 1, size) == 8
    assert library.hipfftMakePlan1d(plan, 8, C2C, 0, size) == 8
    assert library.hipfftMakePlan1d(plan, 8, 0x33, 1, size) == 3
    assert library.hipfftMakePlan1d(plan, 8, C2C, 1, size) == 0
    assert library.hipfftExecC2C(plan, array, array, 0) == 4
    assert library.hipfftExecC2C(plan, NULL, array, -1) == 4
    assert library.hipfftExecZ2Z(plan, array, array, -1) == 3
    assert library.hipfftMakePlan1d(plan, 9, C2C, 1, size) == 0
    assert library.hipfftExecC2C(plan, array, array, -1) == 6, "the array is too short"
    assert library.hipfftDestroy(plan) == 0
    assert library.hipfftDestroy(plan) == 1
