"""Convert the keywords of a repeated call to the arguments of its epilogue, without checks.

All keywords of a call are checked when its plan is made. A later call with the same key has options
of the same names and types, so only their values are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cupygemm._request.epilogue import ARRAYS, EpilogueArguments, Factors, limits, number

_PLAIN = frozenset({float, int})  # numbers that need no conversion
_new = tuple.__new__  # the constructors of named tuples take twice as long
_FACTORS = ("alpha", "scale_a", "scale_b")


class Binding:
    """Sorts the options of a call by their use.

    Parameters
    ----------
    options : mapping of str to value
        The keywords of the call for which the plan is made.
    arguments : EpilogueArguments
        Their validated values.
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
        """Return the arguments of a call with options of the same names and types."""
        factors = self._factors
        if factors is None:
            alpha: complex = 1.0
            beta = self._beta
            try:
                for name in self._factor_names:
                    value = options[name]
                    alpha *= value if type(value) in _PLAIN else number(name, value)
                if beta is None:
                    value = options["beta"]
                    beta = 1.0 * value if type(value) in _PLAIN else number("beta", value)
            except OverflowError:  # raise the error that names the number beyond float64's range
                for name in (*self._factor_names, "beta"):
                    number(name, options.get(name, 1))
                raise
            scale = number("scale_out", options["scale_out"]).real if self._scale else 1.0
            factors = _new(Factors, (alpha, beta, scale, self._scales_sums))
        clamp = limits(options["clamp"]) if self._clamp else None
        arrays = tuple([name and options[name] for name in self._arrays])
        return _new(EpilogueArguments, (factors, clamp, self._activation, arrays))
