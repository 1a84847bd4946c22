"""`Work`: one rank's part of a sharded product, multiplied panel by panel on its device.

The caller moves the blocks to where `target` says, and calls `multiply` when a panel is complete.
Panels are added to the sums in order, and the epilogue follows the sum of all parts of k.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._distributed.arguments import checked_call, product_options
from cupygemm._distributed.sharded_plan import Move, ShardedPlan
from cupygemm._distributed.sums import added_in_order, finished
from cupygemm._products.matmul import matmul


class Work:
    """The products of a rank, whose device must be the current one in all calls.

    Parameters
    ----------
    plan : ShardedPlan
    rank : int
    types : tuple of numpy.dtype
        Of the arrays that hold A and B, and of the sums.
    out : cupy.ndarray
        The rank's block of the result.
    dtype : dtype or None
    casting : str
    options : mapping
        Of `cupygemm.matmul`, for this block.
    """

    def __init__(
        self,
        plan: ShardedPlan,
        rank: int,
        types: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]],
        out: Any,
        *,
        dtype: DTypeLike | None,
        casting: str,
        options: Mapping[str, Any],
    ) -> None:
        import cupy

        self.plan, self.rank, self.out = plan, rank, out
        self.task = plan.tasks[rank]
        self._types = types
        self._dtype, self._casting, self._options = dtype, casting, options
        self._products = product_options(options)
        self.a = [cupy.empty(region.shape, types[0]) for region in self.task.a]
        self.b = [cupy.empty(region.shape, types[1]) for region in self.task.b]
        self._is_whole = not plan.sums and len(self.a) == 1
        self.sums: Any = None
        if not self._is_whole:
            self.sums = cupy.empty(self.task.result.shape, types[2])
        self._parts: Any = None
        if plan.sums:
            self._parts = cupy.empty((plan.cube.k, *plan.owned[rank].shape), types[2])

    def target(self, operand: str, panel: int, move: Move) -> Any:
        """Return the position in its panel of a region of an operand, ``"a"`` or ``"b"``."""
        whole = getattr(self.task, operand)[panel]
        return getattr(self, operand)[panel][move.region.within(whole)]

    def part_source(self, move: Move) -> Any:
        """Return the partial products of this rank that another rank adds."""
        return self.sums[move.region.within(self.task.result)]

    def part_target(self, move: Move) -> Any:
        """Return the array for partial products of another rank."""
        part = self.plan.tasks[move.source.rank].part
        return self._parts[part][move.region.within(self.plan.owned[self.rank])]

    def multiply(self, panel: int) -> None:
        """Enqueue the product of a panel, on the current stream."""
        a, b = self.a[panel], self.b[panel]
        if self._is_whole:
            matmul(a, b, self.out, dtype=self._dtype, casting=self._casting, **self._options)
            return
        sums, given = self._types[2], self._products
        if panel == 0:
            matmul(a, b, self.sums, dtype=sums, casting="unsafe", **given)
        elif sums.kind in "biu":
            product = matmul(a, b, dtype=sums, casting="unsafe", **given)
            self.sums += product
        else:
            matmul(a, b, self.sums, dtype=sums, casting="unsafe", c=self.sums, **given)

    def finish(self) -> None:
        """Enqueue the sum of all parts and the epilogue, on the current stream."""
        import cupy

        if self._is_whole:
            return
        total = self.sums if self._parts is None else added_in_order(self._parts, self._types[2])
        rows, columns = total.shape
        stand_ins = cupy.empty((rows, 1), self._types[0]), cupy.empty((1, columns), self._types[1])
        call = checked_call(
            *stand_ins, self.out, dtype=self._dtype, casting=self._casting, options=self._options
        )
        finished(call, total, self.out)
