"""A backend that multiplies on the host with NumPy: complete, and a model for others.

It copies the operands from the device, adds up products of blocks of k, applies the epilogue, and
copies the result back. docs/developer/add_a_backend.rst walks through this file, and the generic
tests of products run under it: ``pytest --backend numpy``.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import cupy
import ml_dtypes
import numpy as np

from cupygemm._backends.no_extras import NoExtras
from cupygemm._backends.protocol import SUPPORTED, Compiled, Support
from cupygemm._backends.unfused import evaluated
from cupygemm._epilogue.formula import NUMPY
from cupygemm._records.dtypes import ELEMENT_OF, FLOAT8_DTYPES
from cupygemm._records.formats import as_stored
from cupygemm._request.call import operand_of
from cupygemm._request.promotion import COMPUTED_IN_F32

# -- Configurations --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """How a product is computed: the elements along k that one call of NumPy sums."""

    block_k: int

    @property
    def summary(self):
        return f"NumPy, {self.block_k} elements along k at a time"

    brief = summary


CONFIGS = tuple(BlockConfig(block_k=block_k) for block_k in (64, 512, 4096))


@dataclass(frozen=True)
class BlockCandidate:
    """A configuration with its modelled cost: of each block, a call and its multiplications."""

    config: BlockConfig
    cycles: float

    @classmethod
    def of(cls, config, request):
        num_blocks = -(-request.shape.k // config.block_k)
        return cls(config, num_blocks * (1000 + request.shape.size * config.block_k))


# -- The backend -----------------------------------------------------------------------------------


class NumpyBackend(NoExtras):
    """Computes products on the host."""

    name = "numpy"
    formats = ("e4m3fn", "e5m2")
    config_type = BlockConfig
    num_products = 0  # computed in this process, for the tests

    def supports(self, request):
        """Accept every type but those 8-bit floats that the backend does not offer."""
        types = request.types
        for dtype in (types.x1, types.x2, types.stored):
            if dtype in FLOAT8_DTYPES and ELEMENT_OF[dtype] not in self.formats:
                return Support(f"the NumPy backend does not multiply {dtype}")
        return SUPPORTED

    def candidates(self, request):
        """Return all configurations, the cheapest first."""
        found = [BlockCandidate.of(config, request) for config in CONFIGS]
        return sorted(found, key=lambda candidate: candidate.cycles)

    def compile(self, request, config=None, *, reason=""):
        """Choose a configuration; there is nothing to compile."""
        if config is None:
            cheapest = self.candidates(request)[0]
            config, reason = cheapest.config, f"{cheapest.cycles:.0f} cycles (modelled)"
        if config.block_k < 1:
            raise ValueError(f"block_k = {config.block_k} is not positive")
        return Compiled(computed_by="numpy", reason=reason, handle=None, config=config)

    def launch(self, request, compiled):
        """Return what computes the request."""
        block_k = compiled.config.block_k
        return make_runner(request, lambda a, b: sums_of_blocks(a, b, block_k))

    def triangle(self, request):
        """Return what computes ``x @ x.T`` by its lower triangle."""
        return make_runner(request, lambda a, b: sums_of_triangle(a))

    def groups(self, requests):
        """Return all products of several as one group."""
        able = {number: request for number, request in requests.items() if self.supports(request)}
        runs = {number: self.launch(r, self.compile(r)) for number, r in able.items()}
        return [NumpyGroup(runs)] if len(runs) > 1 else []


def create(properties):
    """Return the backend of a device: a factory for `cupygemm._backends.registry`."""
    return NumpyBackend()


class NumpyGroup:
    """Products that one call computes, by their numbers."""

    def __init__(self, runs):
        self.numbers = tuple(runs)
        self._runs = runs

    def __call__(self, x1s, x2s, outs, places):
        """Return the products in new arrays; the caller copies them to `outs`."""
        return [run(x1s[number], x2s[number], None) for number, run in self._runs.items()]


# -- Sums ------------------------------------------------------------------------------------------


def sums_of_blocks(a, b, block_k):
    """Return ``a @ b``, summed in the type of the operands, a block of k after the other."""
    edges = (*range(0, a.shape[-1], block_k), a.shape[-1])
    products = (np.matmul(a[..., i:j], b[..., i:j, :]) for i, j in itertools.pairwise(edges))
    return sum(products, start=next(products))


def sums_of_triangle(a):
    """Return ``a @ a.T``, computed in 64 rows at a time up to the diagonal, and mirrored."""
    sums = np.zeros((len(a), len(a)), a.dtype)
    for i in range(0, len(a), 64):
        sums[i : i + 64, : i + 64] = a[i : i + 64] @ a[: i + 64].T
    return np.tril(sums) + np.tril(sums, -1).T


# -- One call --------------------------------------------------------------------------------------


def make_runner(request, sums_of):
    """Return a runner: operands to the host, sums, the epilogue, one rounding, and back."""
    types, shape = request.types, request.shape
    is_exact = types.operand not in COMPUTED_IN_F32 and request.epilogue is None
    summed = types.operand if is_exact else types.accumulator

    def run(x1, x2, out, *epilogue):
        NumpyBackend.num_products += 1
        a = on_host(x1, request.x1.dtype).astype(types.x1).astype(summed)
        b = on_host(x2, request.x2.dtype).astype(types.x2).astype(summed)
        a, b = a if shape.row else a[None, :], b if shape.column else b[:, None]
        with np.errstate(all="ignore"):
            sums = sums_of(a, b)
            sums = sums.reshape(sums.shape[-2 - len(shape.batch) :])  # out may lack axes of 1
            sums = np.broadcast_to(sums, (*shape.batch, shape.m, shape.n)).reshape(shape.result)
            for given in epilogue:
                arrays = tuple(None if x is None else on_host(x, x.dtype) for x in given.arrays)
                sums = evaluated(NUMPY, sums, request, given._replace(arrays=arrays))
            result = rounded(sums, types.stored).astype(types.result)
        return cupy.asarray(as_stored(result)) if out is None else copied_to(out, result)

    return run


def rounded(x, dtype):
    """Round to a type; 8-bit floats saturate, and so do integers of an epilogue, where NaN is 0."""
    if dtype in FLOAT8_DTYPES:
        largest = float(ml_dtypes.finfo(dtype).max)
        x = np.clip(x, -largest, largest)
    elif dtype.kind in "iu" and x.dtype.kind == "f":
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
        high = np.nextafter(high, 0) if dtype.itemsize == 8 else high  # 2**63 is too large
        x = np.clip(np.rint(np.where(np.isnan(x), 0.0, x.astype(np.float64))), low, high)
    return x.astype(dtype)


# -- Memory ----------------------------------------------------------------------------------------


def on_host(array, dtype):
    """Return a copy of a CuPy array of any strides; its bytes may hold elements of `dtype`."""
    start, end = operand_of(array).extent()
    memory = np.empty(end - start, np.uint8)
    (array.data + start).copy_to_host_async(memory.ctypes.data, memory.nbytes)
    cupy.cuda.get_current_stream().synchronize()
    return np.ndarray(array.shape, dtype, memory, -start, array.strides)


def copied_to(out, values):
    """Copy to a CuPy array of any strides and return it; what lies between is written back."""
    host = on_host(out, values.dtype)
    host[...] = values
    first = out.data + operand_of(out).extent()[0]
    first.copy_from_host_async(host.base.ctypes.data, host.base.nbytes)
    cupy.cuda.get_current_stream().synchronize()
    return out
