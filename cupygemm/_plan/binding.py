"""How the keywords of a repeated call become the arguments of its epilogue, without checking them.

All keywords of a call are checked when its plan is made. A later call with the same key has options
of the same names and types, so only their values are taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cupygemm._request.epilogue import ARRAYS, EpilogueArguments, Factors, limits, number

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

    __slots__ = ("_activation", "_arrays", "_beta", "_clamp", "_factors", "_scale", "_scales_sums")

    def __init__(self, options: Mapping[str, Any], arguments: EpilogueArguments) -> None:
        self._arrays = tuple(
            None if array is None else name
            for name, array in zip(ARRAYS, arguments.arrays, strict=True)
        )
        given = [name for name in options if options[name] is not None]
        self._factors = tuple(
            name for name in _FACTORS if name in given and name not in self._arrays
        )
        self._beta = arguments.factors.beta if options.get("beta") is None else None
        self._scale = "scale_out" in given and "scale_out" not in self._arrays
        self._scales_sums = arguments.factors.scales_sums
        self._clamp = "clamp" in given
        self._activation = arguments.activation

    def __call__(self, options: Mapping[str, Any]) -> EpilogueArguments:
        """Return the arguments of a call with options like those of the first."""
        alpha: complex = 1.0
        for name in self._factors:
            alpha = alpha * number(name, options[name])
        beta = self._beta if self._beta is not None else number("beta", options["beta"])
        scale = number("scale_out", options["scale_out"]).real if self._scale else 1.0
        return EpilogueArguments(
            Factors(alpha, beta, scale, self._scales_sums),
            limits(options["clamp"]) if self._clamp else None,
            self._activation,
            tuple([name and options[name] for name in self._arrays]),
        )
