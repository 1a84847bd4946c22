"""Products of chunks, which are CuPy arrays, as tasks that run on the worker's device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._distributed.serialization import register_serializer
from cupygemm._distributed.sums import finished
from cupygemm._products.einsum import einsum
from cupygemm._products.matmul import matmul
from cupygemm._records.formats import parse_dtype
from cupygemm._request.call import check_call
from cupygemm._request.options import call_options
from cupygemm._request.promotion import F32, HALVES

register_serializer()  # a worker imports this module with its first task


@dataclass(frozen=True, kw_only=True)
class ChunkCall:
    """Facts that all tasks of one product share.

    Attributes
    ----------
    sums : numpy.dtype
        The type of sums over a part of the chunks along k.
    options : mapping of str to object
        The keywords of `cupygemm.matmul`, except the arrays of the epilogue.
    """

    sums: np.dtype[Any]
    options: Mapping[str, Any]

    def __dask_tokenize__(self) -> Any:
        """Return the facts that determine the result, from which Dask names the graph's tasks."""
        return str(self.sums), sorted(self.options.items(), key=lambda item: item[0])


@dataclass(frozen=True, kw_only=True)
class ContractionTypes:
    """The types of a contraction of chunks.

    Attributes
    ----------
    sums : numpy.dtype
        The type in which partial results are added.
    result : numpy.dtype
    """

    sums: np.dtype[Any]
    result: np.dtype[Any]


def contraction_types(
    function: str, operands: Sequence[np.dtype[Any]], dtype: DTypeLike | None
) -> ContractionTypes:
    """Return the types of `tensordot` or `einsum`."""
    wanted = parse_dtype(dtype)
    try:
        result = np.result_type(*operands) if wanted is None else wanted
    except TypeError as err:
        raise TypeError(
            f"{function}: the operands of dtypes {', '.join(map(str, operands))} have no common "
            "dtype; convert one with astype"
        ) from err
    return ContractionTypes(sums=F32 if result in HALVES else result, result=result)


def add(call: ChunkCall, a: Any, b: Any, sums: Any) -> Any:
    """Return ``sums + a @ b`` in the type of the sums; without sums, the product.

    `sums` is not written to, because a scheduler may run a task again.
    """
    formats: dict[str, Any] = {
        name: call.options.get(name) for name in ("format_a", "format_b", "precision")
    }
    exact = call.sums.kind in "biu"
    addend = {} if sums is None or exact else {"c": sums}
    product = matmul(a, b, dtype=call.sums, casting="unsafe", **formats, **addend)
    if exact and sums is not None:
        product += sums
    return product


def finish(
    call: ChunkCall, names: Sequence[str], a: Any, b: Any, sums: Any, arrays: Sequence[Any]
) -> Any:
    """Return a chunk of the result: the epilogue of ``sums + a @ b``, rounded once."""
    options: Any = {**call.options, **dict(zip(names, arrays, strict=True))}
    if sums is None:
        return matmul(a, b, **options)
    total = add(call, a, b, sums)
    dtype, casting = options.pop("dtype"), options.pop("casting")
    checked = check_call(a, b, dtype=dtype, casting=casting, given=call_options(options))
    return finished(checked, total, None)


def contracted(
    *arrays: Any,
    labels: Sequence[Sequence[int]],
    kept: Sequence[int],
    dtype: np.dtype[Any],
    **options: Any,
) -> Any:
    """Return the contraction of one combination of chunks, with an axis of 1 for each sum."""
    operands = [item for pair in zip(arrays, labels, strict=True) for item in pair]
    options = {"casting": "unsafe", **options}
    result = einsum(*operands, list(kept), dtype=dtype, **options)
    summed = {name for names in labels for name in names} - set(kept)
    return result.reshape(result.shape + (1,) * len(summed))
