"""The report of a refit: the constants before and after, and the errors of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.fit import fitting
from benchmarks.fit.fitting import Errors, Predict, Row


@dataclass(frozen=True)
class Report:
    """The outcome of the fit of one record of constants.

    Attributes
    ----------
    name : str
    before, after : dataclass
        The constants.
    old, new : Errors
        Errors for the products that were held out of the fit.
    groups : mapping of str to tuple of Errors
        The same for each group of products, including the fitted ones.
    """

    name: str
    before: Any
    after: Any
    old: Errors
    new: Errors
    groups: Mapping[str, tuple[Errors, Errors]]

    @classmethod
    def of(
        cls, constants: Any, rows: Sequence[Row], predict: Predict, *, name: str, **options: Any
    ) -> Report:
        """Fit the constants to the rows that are not held out."""
        train, test = fitting.split(rows)
        after = fitting.fit(constants, train, predict, **options)
        groups: dict[str, list[Row]] = {}
        for row in rows:
            groups.setdefault(f"{row.product.operands}, {row.product.group}", []).append(row)
        return cls(
            name=name,
            before=constants,
            after=after,
            old=fitting.errors(constants, test, predict),
            new=fitting.errors(after, test, predict),
            groups={
                group: tuple(fitting.errors(each, of_group, predict) for each in (constants, after))
                for group, of_group in sorted(groups.items())
            },
        )

    @property
    def is_better(self) -> bool:
        return fitting.is_better(self.new, self.old)

    @property
    def chosen(self) -> Any:
        """The constants that are better on the held-out products."""
        return self.after if self.is_better else self.before

    def __str__(self) -> str:
        lines = [
            f"{self.name}, products held out of the fit:",
            f"  before  {self.old}",
            f"  after   {self.new}",
            f"{self.name}, all products of a group, before -> after:",
        ]
        for group, (old, new) in self.groups.items():
            lines.append(
                f"  {group:28s} median {old.median:.3f} -> {new.median:.3f}, "
                f"regret {old.regret:.4f} -> {new.regret:.4f} ({old.products} products)"
            )
        before, after = fitting.flatten(self.before), fitting.flatten(self.after)
        lines.append(f"{self.name}, constants that changed:")
        for name, old_value in before.items():
            if old_value != after[name]:
                far = abs(math.log(after[name] / old_value)) > 0.98 * fitting.RANGE
                note = "  (as far as one refit goes; refit again)" if far else ""
                lines.append(f"  {name:28s} {old_value:.6g} -> {after[name]:.6g}{note}")
        verdict = "better than" if self.is_better else "not better than"
        return "\n".join([*lines, f"{self.name}: the refitted constants are {verdict} the present"])
