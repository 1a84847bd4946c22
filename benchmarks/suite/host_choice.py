"""Host: the time in which the cost model chooses a kernel on Hopper. It needs no GPU."""

from __future__ import annotations

import itertools
import random
from typing import ClassVar

TYPES = {"bf16": "bf16", "tf32": "f32", "i8": "i32", "e4m3fn": "bf16"}
"""The types of results by those of the operands."""
_KNOWN = 20  # choices before those that are timed


class HostHopperChoice:
    """Seconds to choose a kernel for a shape that the process has not seen before."""

    version = "1"
    params: ClassVar[tuple[str, ...]] = tuple(TYPES)
    param_names = ("operands",)
    number, repeat, warmup_time = 1, (50, 200, 10.0), 0
    _numbers = itertools.count()

    def setup(self, operands: str) -> None:
        from cupygemm._backends.hopper.choice.select import select
        from cupygemm._backends.hopper.config import HopperArch

        self.select, self.arch = select, HopperArch()
        for _ in range(_KNOWN):
            self.problem = self._new_problem(operands)
            self.select(self.problem, self.arch)
        self.problem = self._new_problem(operands)

    def _new_problem(self, operands: str) -> object:
        from cupygemm._records.problem import GemmProblem

        draw = random.Random(next(self._numbers))  # noqa: S311
        m, n, k = (8 * draw.randint(32, 1500) for _ in range(3))
        types = {"a_dtype": operands, "b_dtype": operands, "out_dtype": TYPES[operands]}
        majors = {"a_major": "k", "b_major": draw.choice("kn")}
        return GemmProblem(m=m, n=n, k=k, batch=(), **types, **majors)

    def time_choice(self, operands: str) -> None:
        self.select(self.problem, self.arch)

    time_choice.pretty_name = "Host: choice of a kernel on Hopper"
