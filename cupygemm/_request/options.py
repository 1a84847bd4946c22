"""The options of `matmul`: the keywords, and the record of them that a plan depends on.

A plan depends on the record `Options`. `CallOptions` also holds the numbers and arrays of the
epilogue, on which a plan does not depend. ``stream``, ``axes`` and ``order`` are applied before
these records are made. Calls with no keywords but ``dtype`` and ``casting`` do not use this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from cupygemm._records.formats import Precision, parse_precision
from cupygemm._request.arrays import as_array
from cupygemm._request.epilogue import (
    Adopt,
    EpilogueArguments,
    EpilogueOptions,
    EpilogueRequest,
    epilogue_arguments,
)
from cupygemm._request.keywords import REFUSED, refuse


class MatmulOptions(EpilogueOptions, total=False):
    """The keywords of `matmul` and `explain` that most calls do not use."""

    format_a: DTypeLike | None
    format_b: DTypeLike | None
    precision: str | None
    reproducible: bool
    axes: Any
    order: str | None
    stream: Any


DEFAULTS: MatmulOptions = {
    "format_a": None,
    "format_b": None,
    "precision": None,
    "alpha": None,
    "beta": None,
    "c": None,
    "bias": None,
    "activation": None,
    "scale_a": None,
    "scale_b": None,
    "scale_out": None,
    "clamp": None,
    "reproducible": True,
    "axes": None,
    "order": "K",
    "stream": None,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that a plan depends on.

    Attributes
    ----------
    dtype : numpy.dtype or None
    casting : str
    precision : {"ieee", "tf32", "tf32x3"}
        The precision in which float32 operands are multiplied.
    epilogue : EpilogueRequest or None
    reproducible : bool
        Whether the bits of a result must depend only on the operands.
    """

    dtype: np.dtype[Any] | None = None
    casting: str = "same_kind"
    precision: Precision = "ieee"
    epilogue: EpilogueRequest | None = None
    reproducible: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """The validated keywords of one call.

    Attributes
    ----------
    format_a, format_b : str, numpy.dtype or None
        As given, since their meaning depends on the operands.
    precision : {"ieee", "tf32", "tf32x3"}
    epilogue : EpilogueArguments or None
    reproducible : bool
    """

    format_a: Any = None
    format_b: Any = None
    precision: Precision = "ieee"
    epilogue: EpilogueArguments | None = None
    reproducible: bool = True


def call_options(keywords: MatmulOptions, adopt: Adopt = as_array) -> CallOptions:
    """Validate the keywords of a call; `adopt` converts the arrays of the epilogue.

    Raises
    ------
    TypeError
        A keyword is unknown, or a value is of the wrong kind.
    ValueError
        Options contradict each other, or one does not have an allowed value.
    """
    given: dict[str, Any] = dict(keywords)
    if not given.keys() <= DEFAULTS.keys():
        refuse("matmul", REFUSED.keys() - DEFAULTS.keys(), given)
        unknown = next(name for name in given if name not in DEFAULTS)
        raise TypeError(f"matmul() got an unexpected keyword argument {unknown!r}")
    format_a, format_b = given.pop("format_a", None), given.pop("format_b", None)
    precision = parse_precision(given.pop("precision", None))
    reproducible = bool(given.pop("reproducible", True))
    epilogue = epilogue_arguments(**given, adopt=adopt)
    return CallOptions(
        format_a=format_a,
        format_b=format_b,
        precision=precision,
        epilogue=epilogue,
        reproducible=reproducible,
    )


def require_positive(function: str, name: str, value: Any) -> None:
    """Raise ValueError unless a value is an integer of 1 or more."""
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{function}: {name} is {value!r}; it must be a positive integer")


Function = TypeVar("Function", bound=Callable[..., Any])


def with_keywords(function: Function) -> Function:
    """Show the keywords of ``**options`` in a function's signature.

    They are not declared as parameters, because filling in that many defaults would take longer
    than looking up the plan of a call.
    """
    signature = inspect.signature(function)
    shown = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name, default in DEFAULTS.items():
        shown.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return function
