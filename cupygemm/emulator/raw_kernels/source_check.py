"""A check of the HIP source that a code object keeps, when one of its kernels is launched."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cupygemm.emulator.diagnostics import checking
from cupygemm.emulator.diagnostics.findings import report_call
from cupygemm.emulator.diagnostics.source_findings import called_by_cupy
from cupygemm.emulator.errors import SourceFault

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import CodeObject


class SourceCheck:
    """Reports the findings in a program once; an error is repeated at each launch.

    Parameters
    ----------
    check : str
        The name of the check.
    head : str
        The first line of a report.
    find : callable
        Yields the line of each finding in a source, and an explanation.
    """

    def __init__(
        self, check: str, head: str, find: Callable[[str], Iterator[tuple[int, str]]]
    ) -> None:
        self._check, self._head, self._find = check, head, find
        self._seen: weakref.WeakSet[CodeObject] = weakref.WeakSet()

    def report(self, code_object: CodeObject) -> None:
        """Check a program that has not been checked yet.

        Raises
        ------
        SourceFault
            There is a finding, and the check is an error.
        """
        if code_object in self._seen:
            return
        severity = checking.policy()[self._check]
        if severity == "off":
            return
        self._seen.add(code_object)
        name, source = code_object.program
        if not (found := list(self._find(source))) or called_by_cupy():
            return
        if severity == "error":
            self._seen.discard(code_object)
        lines = [f"  {name}:{line}: {what}" for line, what in found]
        text = "\n".join([self._head, *lines, f"  check: {self._check}"])
        report_call(SourceFault(text, self._check), severity)
