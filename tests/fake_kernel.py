"""A GEMM kernel in NumPy that takes the kernels' argument struct and uses host memory.

Like the device's kernels, it reads only the struct, the problem record and the bytes at the
addresses, so a correct product shows that the call was planned correctly. It also checks the
alignment, the spans and the extents that the records claim.
"""

from __future__ import annotations

import functools
import math
from types import SimpleNamespace

import numpy as np

from cupygemm._backends.cdna.config import grid
from cupygemm._backends.cdna.launch import GEMM_ARGS, GemmLaunch
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._records.dtypes import ELEMENT_TYPES
from cupygemm._request.copies import assign, copied
from cupygemm._request.layout import Operand
from cupygemm._request.options import Options
from cupygemm._request.placement import place
from cupygemm._request.request import make_request


@functools.cache
def any_config():
    """Return any configuration; the fake kernel uses only its tile and its number of threads."""
    return configs_for("bf16", "gfx942")[0]


def operand(array):
    return Operand(array.shape, array.strides, array.dtype, array.__array_interface__["data"][0])


def multiply(x1, x2, out=None, *, dtype=None, casting="same_kind", aliased=False):
    """Compute a product as a backend does, but in NumPy; return it and its placement."""
    request = make_request(
        operand(x1),
        operand(x2),
        None if out is None else operand(out),
        options=Options(dtype=None if dtype is None else np.dtype(dtype), casting=casting),
        aliased=aliased,
    )
    placed = place(request)
    a, b = copied(x1, placed.x1_copy), copied(x2, placed.x2_copy)
    target = out
    if out is None or placed.temporary is not None:
        target = _aligned_empty(request.shape.result, request.types.stored)
    if placed.layout.swapped:
        a, b = b, a
    kernel = NumpyKernel(placed.layout.problem)
    for offsets in placed.layout.launches:
        launch = GemmLaunch(kernel, placed.layout, offsets, any_config())
        launch(*(x.__array_interface__["data"][0] for x in (a, b, target)))
    if out is None:
        return target, placed
    if target is not out:
        assign(out, target)
    return out, placed


class NumpyKernel:
    """``kernel(grid, block, (struct,))`` for one problem."""

    def __init__(self, problem):
        self.problem = problem
        self.num_launches = 0

    def __call__(self, workgroups, block, args):
        (packed,) = args
        assert packed.size == 1
        args = packed.view(GEMM_ARGS)[0]
        problem = self.problem
        self.num_launches += 1
        extents = tuple(int(args[f"batch{axis}"]) for axis in range(3))
        assert (args["m"], args["n"], args["k"]) == (problem.m, problem.n, problem.k)
        assert workgroups == grid(any_config(), problem)
        assert math.prod(extents) == problem.num_batches
        assert block == (any_config().num_threads, 1, 1)
        a = self._matrices(args, "a", (problem.m, problem.k), problem.a_major == "k")
        b = self._matrices(args, "b", (problem.k, problem.n), problem.b_major == "n")
        c = self._matrices(args, "c", (problem.m, problem.n), True)
        with np.errstate(over="ignore", invalid="ignore"):
            product = np.matmul(a.astype(np.float32), b.astype(np.float32))
            c[...] = product.astype(c.dtype)

    def _matrices(self, args, name, shape, by_row):
        problem = self.problem
        element = problem.out_dtype if name == "c" else getattr(problem, f"{name}_dtype")
        dtype = ELEMENT_TYPES[element].array
        size = dtype.itemsize
        pitch = int(args[f"ld{name}"])
        strides = [int(stride) for stride in args[f"{name}_stride"]]
        extents = [int(args[f"batch{axis}"]) for axis in range(3)]
        address = int(args[name])
        adjacent, count = (shape[1], shape[0]) if by_row else shape
        assert pitch >= adjacent
        align = getattr(problem, f"{name}_align")
        used = [s for s, extent in zip(strides, extents, strict=True) if extent > 1]
        assert align in (2, 4, 8, 16)
        assert not any(
            value % align for value in (address, pitch * size, *(s * size for s in used))
        )
        assert getattr(problem, f"{name}_span") == ((count - 1) * pitch + adjacent) * size
        matrix = (pitch * size, size) if by_row else (size, pitch * size)
        return array_at(address, (*extents, *shape), (*(s * size for s in strides), *matrix), dtype)


def array_at(address, shape, strides, dtype):
    """Return host memory as an array."""
    interface = {
        "data": (address, False),
        "shape": shape,
        "strides": strides,
        "typestr": f"<u{dtype.itemsize}",
        "version": 3,
    }
    return np.asarray(SimpleNamespace(__array_interface__=interface)).view(dtype)


def _aligned_empty(shape, dtype):
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + 16, np.uint8)
    start = -memory.__array_interface__["data"][0] % 16
    return memory[start : start + size].view(dtype).reshape(shape)
