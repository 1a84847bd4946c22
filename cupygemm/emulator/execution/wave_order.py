"""The order in which CuPy's launches run their waves; the environment may choose it.

    CUPYGEMM_EMULATE_ORDER=reverse python program.py
    cupygemm check --wave-order 3 program.py            a random order, of seed 3

A GPU guarantees no order. Where the order changes the bits of a result, such as a sum of atomic
additions in floating point, the program's result may differ from run to run.
"""

from __future__ import annotations

import os
from typing import cast, get_args

from cupygemm.emulator.execution.schedule import NamedOrder, Order

VARIABLE = "CUPYGEMM_EMULATE_ORDER"
_NAMES = get_args(NamedOrder)


def order_of(text: str, what: str = f"{VARIABLE}=") -> Order:
    """Return the order with a given name.

    Parameters
    ----------
    text : str
        The name of an order, or a seed for a random one; "" is the default order of a launch.
    what : str
        Name of the setting in error messages.

    Raises
    ------
    ValueError
        There is no such order.
    """
    if text.isdecimal():
        return "random", int(text)
    if text not in ("", *_NAMES):
        raise ValueError(f"{what}{text!r}: write {', '.join(_NAMES)}, or a number for a random one")
    return cast(NamedOrder, text or "lockstep")


def chosen_order() -> Order:
    """Return the order that the environment variable names."""
    return order_of(os.environ.get(VARIABLE, ""))
