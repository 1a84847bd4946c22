"""Find non-contiguous arrays as arguments of kernels.

A kernel receives the address of an array's first element, but neither its shape nor its strides. If
it assumes C's order, it reads other elements than those of ``a.T`` or ``a[:, :3]``, and none past
the first of ``a[::-1]``. This is not a fault if the kernel knows the strides. Therefore a view is
not reported

* if a number among the arguments, or in the source, is one of its strides, in elements or bytes,
* if an array of integers among the arguments has room for its strides, or
* if it owns its memory in Fortran's order, which is then intended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupygemm.emulator.diagnostics import checking
from cupygemm.emulator.diagnostics.findings import report_call
from cupygemm.emulator.errors import ArgumentFault
from cupygemm.emulator.raw_kernels.argument_types import Given

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Kernel

CHECK = "argument_views"


@dataclass(frozen=True)
class View:
    """An array that is not in C's order.

    Attributes
    ----------
    shape : tuple of int
    strides : tuple of int
        Bytes.
    itemsize : int
    is_fortran : bool
        Whether its elements are in Fortran's order, without gaps.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    is_fortran: bool

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides in elements."""
        return tuple(stride // self.itemsize for stride in self.strides)


def report(kernel: Kernel, given: Sequence[Given | None], views: Sequence[View | None]) -> None:
    """Report views whose strides a kernel cannot know.

    Parameters
    ----------
    kernel : Kernel
    given : sequence of Given or None
    views : sequence of View or None
        None for any other argument.

    Raises
    ------
    ArgumentFault
        The check is an error.
    """
    severity = checking.policy()[CHECK]
    if severity == "off" or not any(views):
        return
    numbers = {each.value for each in given if each is not None and each.value is not None}
    texts = []
    for position, (argument, view) in enumerate(
        zip(kernel.explicit_arguments, views, strict=False)
    ):
        if view is None or argument.value_kind != "global_buffer":
            continue
        if not _are_strides_known(kernel, given, numbers, view):
            texts.append(
                f"{argument.label(position)}: an array of shape {view.shape} whose "
                f"strides are {view.steps} elements\n    {_why(view)}"
            )
    if texts:
        head = f"kernel {kernel.name} gets the address of a view, and none of its strides"
        advice = "if the kernel takes elements in C's order, pass cupy.ascontiguousarray(x)"
        report_call(
            ArgumentFault("\n  ".join([head, *texts, advice, f"check: {CHECK}"]), CHECK), severity
        )


def _are_strides_known(
    kernel: Kernel, given: Sequence[Given | None], numbers: set[object], view: View
) -> bool:
    """Tell whether a kernel may know the strides of a view."""
    axes = len(view.shape)
    for each in given:
        if each is not None and each.size in (axes, 2 * axes) and each.dtype[0] in "iu":
            return axes > 1 and each.value is None
    if view.is_fortran:  # its strides are among its extents, which kernels receive anyway
        return False
    told = {*view.strides, *view.steps} - {0, 1, -1, view.itemsize, -view.itemsize}
    text = kernel.code_object.program[1]
    return bool(told & numbers) or any(re.search(rf"\b{abs(each)}\b", text) for each in told)


def _why(view: View) -> str:
    if 0 in view.steps:
        return "it repeats elements (broadcast), so that memory holds fewer than its shape says"
    if min(view.strides) < 0:
        return "it is reversed: its other elements lie before its address"
    if view.is_fortran:
        return "it is transposed: memory holds its elements in the order of x.T"
    return "its elements do not follow each other: the kernel would take those between for its own"
