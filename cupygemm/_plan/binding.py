"""How the keywords of a repeated call become the arguments of its epilogue, without checking them.

All keywords of a call are checked when its plan is made. A later call with the same key has options
of the same names and types, so only their values are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cupygemm._request.epilogue import ARRAYS, EpilogueArguments, Factors, limits, number

_EXACT = 1 << 53  # integers below it are exact in float64
_FACTORS = ("alpha", "scale_a", "scale_b")


class Binding:
    """The options of a call by what they are used for.

    Parameters
    ----------
    options : mapping of str to value
        The keywords of the call for which the plan is made.
    arguments : EpilogueArguments
        What they were found to mean.
    """

    __slots__ = (
        "_activation",
        "_arrays",
        "_beta",
        "_clamp",
        "_factor_names",
        "_factors",
        "_scale",
        "_scales_sums",
    )

    def __init__(self, options: Mapping[str, Any], arguments: EpilogueArguments) -> None:
        self._arrays = tuple(
            None if array is None else name
            for name, array in zip(ARRAYS, arguments.arrays, strict=True)
        )
        given = [name for name in options if options[name] is not None]
        self._factor_names = tuple(
            name for name in _FACTORS if name in given and name not in self._arrays
        )
        self._beta = arguments.factors.beta if options.get("beta") is None else None
        self._scale = "scale_out" in given and "scale_out" not in self._arrays
        self._scales_sums = arguments.factors.scales_sums
        self._clamp = "clamp" in given
        self._activation = arguments.activation
        has_numbers = self._factor_names or self._beta is None or self._scale
        self._factors = None if has_numbers else arguments.factors

    def __call__(self, options: Mapping[str, Any]) -> EpilogueArguments:
        """Return the arguments of a call with options like those of the first."""
        factors = self._factors
        if factors is None:
            alpha: complex = 1.0
            for name in self._factor_names:
                alpha = alpha * _number(name, options[name])
            beta = _number("beta", options["beta"]) if self._beta is None else self._beta
            scale = _number("scale_out", options["scale_out"]).real if self._scale else 1.0
            factors = Factors(alpha, beta, scale, self._scales_sums)
        return EpilogueArguments(
            factors,
            limits(options["clamp"]) if self._clamp else None,
            self._activation,
            tuple([name and options[name] for name in self._arrays]),
        )


def _number(name: str, value: Any) -> complex:
    """Return what `number` does, at once for the types that most calls have."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[no-any-return]
    if kind is int and -_EXACT < value < _EXACT:
        return float(value)
    return number(name, value)
