"""The findings of a launch: by policy, they end it, are collected as warnings, or are dropped.

A unit with a finding calls `Findings.report`. If this returns, the unit continues as if its check
did not exist. A warning is described where it is found, once for each kind of finding at each
instruction; a `KernelWarning` lists the warnings at the end of the launch.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cupygemm.emulator.diagnostics.checking import Policy
from cupygemm.emulator.errors import EmulatorError, Fault, KernelFault, KernelWarning

_LISTED = 10  # findings that a warning shows
_NAMED = 3  # disabled checks whose names a summary contains, at most
_STRICTNESS = ("off", "warn", "error")
_PACKAGES = ("cupygemm", "cupy", "cupyx", "cupy_backends")
_observers: list[Observed] = []


class Site(NamedTuple):
    """A line of the user's program, and the names of its module."""

    file: str
    line: int
    function: str
    names: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, in {self.function}"


at_site: contextvars.ContextVar[Site | None] = contextvars.ContextVar("at_site", default=None)
"""The line that submitted the work that runs, if that was submitted before."""


@dataclass(eq=False)
class Observed:
    """The findings of several launches and library calls.

    Attributes
    ----------
    errors : list of EmulatorError
        The errors that ended a launch or a call.
    warnings : list of EmulatorError
        The findings of checks that are warnings.
    launches : dict of str to int
        The number of launches of each kernel, by its name.
    severities : dict of str to set of str
        The severities of each check in the launches.
    """

    errors: list[EmulatorError] = field(default_factory=list)
    warnings: list[EmulatorError] = field(default_factory=list)
    launches: dict[str, int] = field(default_factory=dict)
    severities: dict[str, set[str]] = field(default_factory=dict)

    def add_launch(self, kernel: str, policy: Policy) -> None:
        """Count a launch that has ended."""
        self.launches[kernel] = self.launches.get(kernel, 0) + 1
        for check, severity in policy.items():
            self.severities.setdefault(check, set()).add(severity)

    def checked(self) -> str:
        """Say what was checked, and how strictly: ``3 launches of 2 kernels (25 checks on, ...)``.

        A check counts with its least strict severity.
        """
        launches, kernels = sum(self.launches.values()), len(self.launches)
        least = {check: min(seen, key=_STRICTNESS.index) for check, seen in self.severities.items()}
        by_severity = {each: [c for c in least if least[c] == each] for each in _STRICTNESS}
        off = by_severity["off"]
        named = ", ".join(off) if len(off) <= _NAMED else str(len(off))
        parts = [f"{len(by_severity['error'])} checks on", f"{len(by_severity['warn'])} only warn"]
        return (
            f"{launches:,} launch{'es' * (launches != 1)} of "
            f"{kernels:,} kernel{'s' * (kernels != 1)} "
            f"({', '.join([*parts, f'off: {named}'] if off else parts)})"
        )


class Findings:
    """The findings of one launch.

    Parameters
    ----------
    policy : Policy, optional
        By default, every check has its own default severity.

    Attributes
    ----------
    warnings : list of KernelFault
        The findings that are warnings, in the order in which they were found.
    listed : dict of int to int
        By program counter, a bit mask of the findings already among the warnings, with the codes of
        native/machine.h.
    explain : callable
        Describes a `Fault` of some waves as a `KernelFault`; the run loop sets it.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        self.policy = Policy() if policy is None else policy
        self.warnings: list[KernelFault] = []
        self.listed: dict[int, int] = {}
        self.explain: Callable[[Fault, Any], KernelFault] | None = None
        self._seen: set[tuple[int, str, str]] = set()

    def wants(self, check: str, kind: str, pc: int) -> bool:
        """Tell whether a finding would be an error, or a warning that is not listed yet."""
        severity = self.policy[check]
        return severity == "error" or (severity == "warn" and (pc, check, kind) not in self._seen)

    def report(self, fault: Fault, group: Any, pc: int) -> None:
        """Raise a finding, collect it, or drop it.

        Parameters
        ----------
        fault : Fault
        group : Group or None
            The waves that execute the instruction; None if the fault's wave is numbered in the
            batch.
        pc : int
            Byte offset of the instruction.

        Raises
        ------
        Fault
            Its check is an error, or it belongs to no check.
        """
        severity = self.policy.severity(fault.check, may_be_meant=fault.may_be_meant)
        if severity == "error" or self.explain is None:
            raise fault
        key = pc, fault.check, fault.kind
        if severity == "warn" and key not in self._seen:
            self._seen.add(key)
            self.warnings.append(self.explain(fault, group))

    def finish(self, kernel: str, error: EmulatorError | None = None) -> None:
        """Emit the warnings of a launch that has ended, and tell the observers."""
        self.explain = None  # it refers to the run loop, which refers to this object
        for seen in _observers:
            seen.add_launch(kernel, self.policy)
            seen.warnings.extend(self.warnings)
            if error is not None:
                seen.errors.append(error)
        known = self.policy.known
        others = [fault for fault in self.warnings if fault.check not in known]
        if others:
            _warn(self._warning(others), may_raise=error is None)
        for check in sorted({fault.check for fault in self.warnings} & set(known)):
            _warn(
                f"CuPy's kernel {self.warnings[0].kernel} has a known fault, which changes no "
                f"result: see {known[check].section!r} on the page 'Found in CuPy' of the "
                f"documentation. {check}=error makes it an error",
                may_raise=error is None,
            )

    @staticmethod
    def _warning(found: list[KernelFault]) -> str:
        """Return the text of the warning."""
        count = len(found)
        lines = [f"{count} finding{'s' * (count > 1)} in kernel {found[0].kernel}:"]
        lines += [fault.report() for fault in found[:_LISTED]]
        if count > _LISTED:
            rest = count - _LISTED
            lines.append(f"and {rest} more: see cupygemm.emulator.last_launch().warnings")
        return "\n".join(lines)


def report_call(error: EmulatorError, severity: str) -> None:
    """Raise a finding of a copy, a fill or a library call, or issue a warning."""
    for seen in _observers:
        (seen.errors if severity == "error" else seen.warnings).append(error)
    if severity == "error":
        raise error
    _warn(f"1 finding in a call:\n{error}", may_raise=True)


@contextlib.contextmanager
def observing() -> Iterator[Observed]:
    """Collect the findings of all threads inside a ``with`` statement."""
    seen = Observed()
    _observers.append(seen)
    try:
        yield seen
    finally:
        _observers.remove(seen)


def _warn(text: str, *, may_raise: bool) -> None:
    """Issue a `KernelWarning` at the line of the user's program that made the call."""
    site = at_site.get() or call_site()
    registry = site.names.setdefault("__warningregistry__", {})
    try:
        warnings.warn_explicit(
            KernelWarning(text),
            category=KernelWarning,
            filename=site.file,
            lineno=site.line,
            module=site.names.get("__name__"),
            registry=registry,
        )
    except KernelWarning:  # a filter turns warnings into errors
        if may_raise:
            raise


def call_site() -> Site:
    """Return the innermost line outside CuPy and this library, or the outermost one."""
    frame = sys._getframe()  # noqa: SLF001  # inspect.currentframe returns the same
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _PACKAGES:
            break
    code = frame.f_code
    return Site(code.co_filename, frame.f_lineno, code.co_name, frame.f_globals)
