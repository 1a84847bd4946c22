"""`grouped_matmul` of groups of rows: of one array, or the first rows of each matrix of a stack.

If the device has a kernel that reads the sizes of groups, all groups are one launch, and the host
does not read sizes that are on the device. Otherwise the groups are multiplied one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._backends.device import device
from cupygemm._backends.scales_and_groups import BlockScaling, RowGroups
from cupygemm._plan.keys import options_key, product_key
from cupygemm._plan.plan import on_device, plan_of
from cupygemm._plan.table import PLANS
from cupygemm._products.block_scaled import SHARED_BY_ALL
from cupygemm._products.scaled import scaled_matmul
from cupygemm._request.arrays import Array, as_array, is_scalar, may_overlap, one_device
from cupygemm._request.call import check_call
from cupygemm._request.copies import assign
from cupygemm._request.options import call_options, require_positive
from cupygemm._request.promotion import F32

NAME = "grouped_matmul"
_TYPICAL_ROWS = 128  # the most rows that a group of a stack is expected to have by default


@dataclass(frozen=True, kw_only=True)
class Groups:
    """The validated groups of a call.

    Attributes
    ----------
    a, b : cupy.ndarray
        (m, k), or (groups, rows, k); and (groups, k, n).
    sizes : cupy.ndarray or list of int
        The numbers of rows, or the rows at which groups end. Numbers on the host are valid.
    are_ends : bool
    expected : int
        The rows of a typical group.
    """

    a: Array
    b: Array
    sizes: Any
    are_ends: bool
    expected: int

    @property
    def is_shared(self) -> bool:
        """Whether the groups are adjacent rows of one matrix."""
        return bool(self.a.ndim == 2)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Return the shape of the result."""
        return (*self.a.shape[:-1], self.b.shape[-1])

    def on_host(self) -> list[tuple[Any, int]]:
        """Return each group's rows as an index, and its number; this may wait for the device."""
        sizes = self.sizes if isinstance(self.sizes, list) else self.sizes.get().tolist()
        rows = self.a.shape[-2]
        if not self.is_shared:
            return [((g, slice(min(max(n, 0), rows))), g) for g, n in enumerate(sizes)]
        found, start = [], 0
        for g, (size, before) in enumerate(zip(sizes, [0, *sizes], strict=False)):
            count = size - before if self.are_ends else size
            end = min(start + max(count, 0), rows)
            found.append((slice(start, end), g))
            start = end
        return found


@dataclass(frozen=True, kw_only=True)
class GroupScales:
    """The factors of the rows of A and of the columns of B.

    Attributes
    ----------
    a, b : number, cupy.ndarray or None
        The factors as they were given; arrays are of float32.
    a_along_k, b_along_k : bool
        Whether the factors differ along k.
    block : int
        Number of elements along k, and of columns of B, that share a factor.
    b_shared : int
        Number of columns of B that share a factor, if factors differ along k.
    """

    a: Any
    b: Any
    a_along_k: bool
    b_along_k: bool
    block: int
    b_shared: int

    @property
    def scaling(self) -> BlockScaling | None:
        """Return which scales differ along k; None if none do."""
        if not self.a_along_k and not self.b_along_k:
            return None
        return BlockScaling(
            kind="float32",
            block=self.block,
            rows=1 if self.a_along_k else SHARED_BY_ALL,
            columns=self.b_shared if self.b_along_k else SHARED_BY_ALL,
        )

    def tables(self) -> tuple[Array, Array]:
        """Return the scales along k as (..., rows, blocks) and (..., columns, blocks)."""
        import cupy

        one = None if self.a_along_k and self.b_along_k else cupy.ones((1, 1), F32)
        return (
            self.a if self.a_along_k else one,
            self.b.swapaxes(-1, -2) if self.b_along_k else one,
        )

    def options(self, groups: Groups) -> dict[str, Any]:
        """Return the factors that do not differ along k, as options of the batched product."""
        import cupy

        found: dict[str, Any] = {}
        if self.a is not None and not self.a_along_k:
            found["scale_a"] = self.a
            if getattr(self.a, "ndim", 0):
                found["scale_a"] = self.a[..., None] if self.a.ndim == 2 else self.a[None, :, None]
        if self.b is not None and not self.b_along_k:
            found["scale_b"] = self.b
            if getattr(self.b, "ndim", 0):
                shape = (len(self.b), 1, groups.b.shape[2])
                columns = self.b[:, None, :] if self.b.ndim == 2 else self.b[:, None, None]
                found["scale_b"] = cupy.ascontiguousarray(cupy.broadcast_to(columns, shape))
        return found

    def of_group(self, index: Any, group: int) -> dict[str, Any]:
        """Return the factors of one group, as `scaled_matmul` takes them."""
        found = {}
        if self.a is not None:
            found["scale_a"] = self.a[index] if getattr(self.a, "ndim", 0) else self.a
        if self.b is not None:
            found["scale_b"] = self.b[group] if getattr(self.b, "ndim", 0) else self.b
        return found


def multiply_row_groups(
    a: Any,
    b: Any,
    out: Any,
    *,
    sizes: Any,
    offsets: Any,
    expected_rows: Any,
    scale_a: Any,
    scale_b: Any,
    block: Any,
    formats: dict[str, Any],
    dtype: DTypeLike | None,
    casting: str,
) -> Array:
    """Return the products of groups of rows; see `grouped_matmul`."""
    import cupy

    groups = _groups(a, b, sizes=sizes, offsets=offsets, expected_rows=expected_rows)
    scales = _scales(groups, scale_a, scale_b, block)
    arrays = {"a": groups.a, "b": groups.b}
    given = {"out": out, "sizes": groups.sizes, "scale_a": scales.a, "scale_b": scales.b}
    if out is not None:
        out = given["out"] = as_array(NAME, "out", out)
        if out.shape != groups.result_shape:
            raise ValueError(f"{NAME}: out has shape {out.shape}; it must be {groups.result_shape}")
    one_device(NAME, arrays | {key: x for key, x in given.items() if hasattr(x, "data")})
    x1 = groups.a[None] if groups.is_shared else groups.a
    options = scales.options(groups) | formats
    stored, run = _plan(groups, x1, scales, dtype=dtype, casting=casting, options=options)
    reads = [groups.a, groups.b, *(x for x in (scales.a, scales.b) if hasattr(x, "data"))]
    direct = out is not None and not any(may_overlap(out, x) for x in reads)
    if direct and run is not None:
        direct = out.flags.c_contiguous and out.dtype == stored and out.data.ptr % 16 == 0
    target = out if direct else cupy.empty(groups.result_shape, stored)
    if target.size and groups.a.shape[-1] == 0:
        target.fill(0)
    elif target.size:
        if run is not None:
            run(target)
        else:
            _one_by_one(groups, scales, target, dtype=dtype, casting=casting, formats=formats)
    if out is None or target is out:
        return target
    assign(out, target)
    return out


def _plan(
    groups: Groups,
    x1: Array,
    scales: GroupScales,
    *,
    dtype: DTypeLike | None,
    casting: str,
    options: dict[str, Any],
) -> tuple[np.dtype[Any], Any]:
    """Return the type of the result, and the function that computes it in one launch, if any."""
    x2, is_host = groups.b, isinstance(groups.sizes, list)
    asked = RowGroups(
        count=len(x2),
        shared=groups.is_shared,
        are_ends=groups.are_ends,
        expected=groups.expected,
        scaling=scales.scaling,
    )
    key, more = product_key(x1, x2, None, dtype=dtype, casting=casting), options_key(options)
    key = None if key is None or more is None else (NAME, asked, *key, *more)
    kept: Any = PLANS.get(key)
    if kept is None:
        given = call_options(options)  # type: ignore[arg-type]
        call = check_call(x1, x2, dtype=dtype, casting=casting, given=given)
        place, plan = device(call.device_index), None
        if call.request.work == "product":
            run = on_device(place, lambda: place.kernels.row_groups(call.request, asked))
            if run is not None:
                plan = plan_of(run, call.request, place, options=options, arguments=call.arguments)
        kept = call.request.types.container, plan
        if key is not None:
            PLANS.keep(key, kept)
    stored, plan = kept
    if plan is None:
        return stored, None

    def launch(target: Array) -> None:
        import cupy

        sizes = groups.sizes
        if is_host or sizes.dtype != np.int32 or not sizes.flags.c_contiguous:
            sizes = cupy.asarray(sizes, np.int32, order="C")
        tables = (None, None) if asked.scaling is None else scales.tables()
        epilogue = () if plan.binding is None else (plan.binding(options),)
        plan.run(x1, x2, target, sizes, *tables, *epilogue)

    return stored, launch


def _one_by_one(
    groups: Groups,
    scales: GroupScales,
    target: Array,
    *,
    dtype: DTypeLike | None,
    casting: str,
    formats: dict[str, Any],
) -> None:
    """Multiply one group at a time into `target`."""
    for index, group in groups.on_host():
        if target[index].size:
            scaled_matmul(
                groups.a[index],
                groups.b[group],
                block=scales.block,
                out=target[index],
                dtype=dtype,
                casting=casting,
                **({"scale_a": None, "scale_b": None} | scales.of_group(index, group)),
                **formats,
            )


def _groups(a: Any, b: Any, *, sizes: Any, offsets: Any, expected_rows: Any) -> Groups:
    """Validate the operands and the sizes."""
    a, b = as_array(NAME, "a", a), as_array(NAME, "b", b)
    if a.ndim not in (2, 3) or b.ndim != 3 or a.shape[-1] != b.shape[1]:
        raise ValueError(
            f"{NAME}: with sizes or offsets, a must be (m, k) or (groups, rows, k), and b "
            f"(groups, k, n); a has shape {a.shape} and b has shape {b.shape}"
        )
    count, rows = b.shape[0], a.shape[-2]
    if a.ndim == 3 and a.shape[0] != count:
        raise ValueError(f"{NAME}: a has {a.shape[0]} matrices and b has {count}")
    if sizes is not None and offsets is not None:
        raise ValueError(f"{NAME}: pass either sizes or offsets, not both")
    if offsets is not None and a.ndim == 3:
        raise ValueError(
            f"{NAME}: offsets are ends of groups in an a of two axes, and a has shape {a.shape}; "
            "pass sizes"
        )
    name, given = ("sizes", sizes) if offsets is None else ("offsets", offsets)
    given = _numbers(name, given, count)
    if isinstance(given, list):
        _check_numbers(name, given, rows, is_shared=a.ndim == 2)
    if expected_rows is None:
        expected = max(1, rows // max(count, 1)) if a.ndim == 2 else min(rows, _TYPICAL_ROWS)
        if isinstance(given, list) and a.ndim == 3 and count:
            expected = max(1, sum(given) // count)
    else:
        require_positive(NAME, "expected_rows", expected_rows)
        expected = int(expected_rows)
    return Groups(a=a, b=b, sizes=given, are_ends=offsets is not None, expected=expected)


def _numbers(name: str, given: Any, count: int) -> Any:
    """Return one integer for each group: an array on the device, or a list."""
    values: Any
    if isinstance(given, (Sequence, np.ndarray)) or is_scalar(given):
        values = np.asarray(given)
        if values.size == 0:
            values = values.astype(np.int64)
    else:
        values = as_array(NAME, name, given)
    if values.dtype.kind not in "iu":
        raise TypeError(f"{NAME}: {name} has type {values.dtype}; it must be integers")
    if values.shape != (count,):
        raise ValueError(
            f"{NAME}: {name} has shape {values.shape}; it must be ({count},), one number for each "
            "matrix of b"
        )
    return values.tolist() if isinstance(values, np.ndarray) else values


def _check_numbers(name: str, given: list[int], rows: int, *, is_shared: bool) -> None:
    """Raise ValueError unless numbers on the host describe groups of an operand of `rows` rows."""
    sizes = given
    if name == "offsets":
        sizes = [end - start for start, end in zip([0, *given], given, strict=False)]
    negative = next((g for g, size in enumerate(sizes) if size < 0), None)
    if negative is not None:
        what = "is negative"
        if given[negative] >= 0:
            what = f"is below the one before it, {given[negative - 1]}"
        raise ValueError(f"{NAME}: {name}[{negative}] = {given[negative]} {what}")
    most = sum(sizes) if is_shared else max(sizes, default=0)
    if most > rows:
        what = "the groups have" if is_shared else "a group has"
        raise ValueError(f"{NAME}: {what} {most} rows, and a has {rows}")


def _scales(groups: Groups, scale_a: Any, scale_b: Any, block: Any) -> GroupScales:
    """Validate the factors; arrays become float32."""
    require_positive(NAME, "block", block)
    count, k, n = groups.b.shape
    steps, columns = -(-k // block), -(-n // block)
    rows = groups.a.shape[:-1]
    a = _factors("scale_a", scale_a, {rows: "rows", (*rows, steps): "rows and blocks of k"})
    b = _factors(
        "scale_b",
        scale_b,
        {
            (count,): "groups",
            (count, n): "groups and columns",
            (count, steps, columns): "groups, blocks of k and blocks of columns",
            (count, steps, n): "groups, blocks of k and columns",
        },
    )
    a_along_k = getattr(a, "ndim", 0) > len(rows)
    b_along_k = getattr(b, "ndim", 0) == 3
    return GroupScales(
        a=a,
        b=b,
        a_along_k=a_along_k,
        b_along_k=b_along_k,
        block=int(block),
        b_shared=1 if b_along_k and b.shape[2] == n and n != columns else int(block),
    )


def _factors(name: str, given: Any, allowed: dict[tuple[int, ...], str]) -> Any:
    """Return factors: None, a number, or an array of float32 of one of the shapes."""
    if given is None or is_scalar(given):
        return given
    array = as_array(NAME, name, given)
    if array.dtype.kind != "f":
        raise TypeError(f"{NAME}: {name} has type {array.dtype}; it must be floating-point")
    if array.ndim and array.shape not in allowed:
        shapes = "; ".join(f"{shape} for {what}" for shape, what in allowed.items())
        raise ValueError(f"{NAME}: {name} has shape {array.shape}; it must be {shapes}")
    return array.astype(F32, copy=False)
