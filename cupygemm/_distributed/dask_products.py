"""Products of Dask arrays whose chunks are CuPy arrays.

`matmul` adds the products of the chunks along k in a fixed order, one task after another:

    sums = a[i, 0] @ b[0, j]                      in the type of the accumulator, not rounded
    sums = sums + a[i, 1] @ b[1, j]               the sum is fused into the product
    c[i, j] = epilogue(sums + a[i, 2] @ b[2, j])  rounded once

A task holds one chunk of each operand and the sums. 16-bit operands are summed in float32, as in
the product of whole arrays, and the bits of a result depend only on the chunks, not on the
scheduler. `tensordot` and `einsum` compute a partial result for each combination of chunks, and
Dask adds these.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

import dask.array as da
import numpy as np
import opt_einsum
from dask.array.core import unify_chunks
from dask.array.utils import meta_from_array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import DTypeLike

from cupygemm._distributed import chunk_products
from cupygemm._distributed.chunk_products import ChunkCall
from cupygemm._distributed.sums import type_of_sums
from cupygemm._products.products import tensordot_labels
from cupygemm._products.subscripts import split_call
from cupygemm._records.formats import container, operand_dtype, parse_dtype
from cupygemm._records.shapes import ProductShape
from cupygemm._request.arrays import Array, type_of
from cupygemm._request.epilogue import ARRAYS, as_result_shape
from cupygemm._request.layout import Operand, contiguous
from cupygemm._request.options import MatmulOptions, Options, call_options
from cupygemm._request.promotion import ProductTypes
from cupygemm._request.request import make_request

Index = tuple[int, ...]
_REMEDIES = {
    "out": "assign the result, or store it with dask.array.store",
    "axes": "move the axes of the operands with dask.array.moveaxis",
    "order": "the order of each chunk is chosen so that nothing is copied",
}


def matmul(
    x1: Any,
    x2: Any,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
    **options: Any,
) -> Array:
    """Return ``cupygemm.matmul(x1, x2, ...)`` of Dask arrays, as a Dask array.

    Raises
    ------
    ValueError
        The shapes do not match.
    TypeError
        The chunks of an operand are not CuPy arrays, the types have no product, or an option has no
        meaning for a Dask array.
    """
    _refuse("matmul", {"out": out, **options})
    x1, x2 = _chunked("matmul", "x1", x1), _chunked("matmul", "x2", x2)
    options = {name: value for name, value in options.items() if name not in _REMEDIES}
    given = call_options(cast(MatmulOptions, options), adopt=lambda function, name, array: array)
    formats = {name: options.get(name) for name in ("format_a", "format_b")}
    request = make_request(
        _operand("x1", x1, "format_a", formats["format_a"]),
        _operand("x2", x2, "format_b", formats["format_b"]),
        options=Options(dtype=parse_dtype(dtype), casting=casting),
    )
    shape, types = request.shape, request.types
    arrays, numbers = _epilogue(options, shape)
    a = x1 if shape.row else x1[None, :]
    b = x2 if shape.column else x2[:, None]
    a, b = _aligned(a, b)
    call = ChunkCall(
        sums=type_of_sums(types, epilogue=given.epilogue is not None),
        options={"dtype": dtype, "casting": casting, **numbers},
    )
    blocks = _Blocks(a, b, {name: _spread(array, a, b) for name, array in arrays.items()})
    result = blocks.product(call, types, tokenize(x1, x2, arrays, call))
    kept = [slice(None)] * (result.ndim - 2)
    index = (*kept, slice(None) if shape.row else 0, slice(None) if shape.column else 0)
    return result if shape.row and shape.column else result[index]


def tensordot(a: Any, b: Any, axes: Any = 2) -> Array:
    """Return ``cupygemm.tensordot(a, b, axes)`` of Dask arrays, as a Dask array."""
    a, b = _chunked("tensordot", "a", a), _chunked("tensordot", "b", b)
    labels_a, labels_b, kept = tensordot_labels(axes, a.shape, b.shape)
    return _contracted("tensordot", (a, b), (labels_a, labels_b), kept)


def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = "auto",
    dtype: DTypeLike | None = None,
    order: str = "K",
    casting: str = "safe",
) -> Array:
    """Return ``cupygemm.einsum(*operands, ...)`` of Dask arrays, as a Dask array."""
    _refuse("einsum", {"out": out, **({} if order == "K" else {"order": order})})
    _, given = split_call(operands)
    arrays = [_chunked("einsum", f"operand {i}", x) for i, x in enumerate(given)]
    inputs, output, _ = opt_einsum.parser.parse_einsum_input(operands)
    terms = inputs.split(",")
    letters = {letter: i for i, letter in enumerate(dict.fromkeys("".join(terms)))}
    return _contracted(
        "einsum",
        tuple(arrays),
        tuple([letters[letter] for letter in term] for term in terms),
        [letters[letter] for letter in output],
        dtype=dtype,
        optimize=optimize,
        casting=casting,
    )


# -- contraction -----------------------------------------------------------------------------------


def _contracted(
    function: str,
    arrays: tuple[Array, ...],
    labels: tuple[list[int], ...],
    kept: list[int],
    *,
    dtype: DTypeLike | None = None,
    **options: Any,
) -> Array:
    """Return the sum of the partial contractions of all combinations of chunks."""
    arrays = _whole_along_diagonals(arrays, labels)
    extents: dict[int, int] = {}
    for array, names in zip(arrays, labels, strict=True):
        for name, extent in zip(names, array.shape, strict=True):
            if extents.setdefault(name, extent) != extent:
                raise ValueError(
                    f"{function}: the extents of one index differ: {extents[name]} and {extent}"
                )
    types = chunk_products.contraction_types(function, [x.dtype for x in arrays], dtype)
    summed = [name for name in extents if name not in kept]
    pairs = [item for pair in zip(arrays, labels, strict=True) for item in pair]
    parts = da.blockwise(
        partial(chunk_products.contracted, labels=labels, kept=kept, dtype=types.sums, **options),
        [*kept, *summed],
        *pairs,
        adjust_chunks={name: (lambda _: 1) for name in summed},
        concatenate=False,
        dtype=types.sums,
        meta=meta_from_array(_meta(arrays[0]), len(extents), types.sums),
    )
    axes = tuple(range(len(kept), len(extents)))
    total = parts.sum(axis=axes, dtype=types.sums) if axes else parts
    return total.astype(types.result)


def _whole_along_diagonals(
    arrays: tuple[Array, ...], labels: tuple[list[int], ...]
) -> tuple[Array, ...]:
    """Rechunk arrays to a single chunk along each label that one of them has twice."""
    twice = {name for names in labels for name in names if names.count(name) > 1}
    if not twice:
        return arrays
    return tuple(
        array.rechunk({axis: -1 for axis, name in enumerate(names) if name in twice})
        for array, names in zip(arrays, labels, strict=True)
    )


# -- products by blocks ----------------------------------------------------------------------------


class _Blocks:
    """The chunks of a product's operands, and the graph that multiplies them.

    Parameters
    ----------
    a, b : dask.array.Array
        Operands with the same number of axes and the same chunks along k.
    arrays : mapping of str to dask.array.Array
        The arrays of the epilogue, with as many axes as the result.
    """

    def __init__(self, a: Array, b: Array, arrays: Mapping[str, Array]) -> None:
        self.a, self.b, self.arrays = a, b, arrays
        batch = tuple(max(pair, key=sum) for pair in zip(a.chunks[:-2], b.chunks[:-2], strict=True))
        self.chunks = (*batch, a.chunks[-2], b.chunks[-1])

    def product(self, call: ChunkCall, types: ProductTypes, token: str) -> Array:
        """Return the product as a Dask array."""
        name = f"cupygemm-matmul-{token}"
        tasks: dict[Any, Any] = {}
        for index in itertools.product(*(range(len(sizes)) for sizes in self.chunks)):
            tasks |= self._sum(name, index, call)
        graph = HighLevelGraph.from_collections(
            name, tasks, dependencies=[self.a, self.b, *self.arrays.values()]
        )
        dtype = container(types.result)
        meta = meta_from_array(_meta(self.a), len(self.chunks), dtype)
        return da.Array(graph, name, self.chunks, dtype=dtype, meta=meta)

    def _sum(self, name: str, index: Index, call: ChunkCall) -> Iterator[tuple[Any, Any]]:
        """Yield the tasks of one chunk of the result."""
        *batch, i, j = index
        last = len(self.a.chunks[-1]) - 1
        names = tuple(self.arrays)
        options = [_chunk_of(array, index) for array in self.arrays.values()]
        before: Any = None
        for k in range(last + 1):
            first = _chunk_of(self.a, (*batch, i, k))
            second = _chunk_of(self.b, (*batch, k, j))
            if k < last:
                key: Any = (f"{name}-sums", *index, k)
                yield key, (partial(chunk_products.add, call), first, second, before)
                before = key
            else:
                step = partial(chunk_products.finish, call, names)
                yield (name, *index), (step, first, second, before, options)


def _chunk_of(array: Array, index: Index) -> tuple[Any, ...]:
    """Return the key of a chunk; axes of length 1 broadcast."""
    place = (0 if len(sizes) == 1 else i for i, sizes in zip(index, array.chunks, strict=True))
    return (array.name, *place)


def _aligned(a: Array, b: Array) -> tuple[Array, Array]:
    """Return operands with the same number of axes, and the same chunks along shared axes."""
    axes = max(a.ndim, b.ndim)
    a = a[(None,) * (axes - a.ndim)]
    b = b[(None,) * (axes - b.ndim)]
    batch = list(range(axes - 2))
    _, (a, b) = unify_chunks(a, [*batch, "m", "k"], b, [*batch, "k", "n"])
    return a, b


def _epilogue(
    options: Mapping[str, Any], shape: ProductShape
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into arrays, with as many axes as the product of matrices, and the rest."""
    arrays, rest = {}, {}
    for name, value in options.items():
        if name not in ARRAYS or not hasattr(value, "ndim") or isinstance(value, np.generic):
            rest[name] = value
            continue
        array = _chunked("matmul", name, value)
        whole = as_result_shape(name, array.shape, shape)
        if whole is None:
            raise ValueError(
                f"matmul: {name} has shape {array.shape}, which does not broadcast to the "
                f"result's, {shape.result}"
            )
        array = array.reshape(whole)
        array = array if shape.column else array[..., None]
        arrays[name] = array if shape.row else array[..., None, :]
    return arrays, rest


def _spread(array: Array, a: Array, b: Array) -> Array:
    """Return an array of the epilogue in the chunks of the result."""
    sizes = [*map(partial(max, key=len), zip(a.chunks[:-2], b.chunks[:-2], strict=True))]
    target = (*sizes, a.chunks[-2], b.chunks[-1])
    chunks = tuple(
        (1,) if extent == 1 else want for extent, want in zip(array.shape, target, strict=True)
    )
    return array.rechunk(chunks)


# -- arguments -------------------------------------------------------------------------------------


def _chunked(function: str, name: str, array: Any) -> Array:
    """Return an operand as a Dask array of CuPy chunks; a CuPy array becomes a single chunk."""
    import cupy

    if isinstance(array, cupy.ndarray):
        return da.from_array(array, chunks=-1, asarray=False)
    if not isinstance(array, da.Array):
        raise TypeError(
            f"{function}: {name} is {type_of(array)}, next to a Dask array; pass a "
            f"Dask array of CuPy chunks, e.g. "
            f"dask.array.from_array({name}).map_blocks(cupy.asarray)"
        )
    chunk = type(_meta(array))
    if not issubclass(chunk, cupy.ndarray):
        kind = f"{chunk.__module__}.{chunk.__qualname__}"
        raise TypeError(
            f"{function}: the chunks of {name} are of type {kind}, not cupy.ndarray; move them to "
            f"the device first: {name}.map_blocks(cupy.asarray)"
        )
    if any(np.isnan(extent) for extent in array.shape):
        raise ValueError(
            f"{function}: {name} has chunks of unknown sizes, shape {array.shape}; compute them "
            f"first: {name}.compute_chunk_sizes()"
        )
    return array


def _meta(array: Array) -> Any:
    """Return an empty array of the type of the chunks."""
    return array._meta  # noqa: SLF001  # read by Dask's own functions and other libraries too


def _operand(name: str, array: Array, keyword: str, given: Any) -> Operand:
    """Describe an operand for the checks, as a C-contiguous array of its shape and type."""
    dtype = operand_dtype(name, keyword, array.dtype, given)
    return contiguous(array.shape, dtype)


def _refuse(function: str, options: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that has no meaning for a Dask array."""
    for name, remedy in _REMEDIES.items():
        if options.get(name) is not None:
            raise TypeError(f"{function} of Dask arrays takes no {name}: {remedy}")
