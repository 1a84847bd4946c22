"""Decide whether a check's finding is an error, a warning or dropped.

`table` lists the checks. A policy has a severity for each: a finding of a check that is an "error"
ends the launch, a "warn" is collected while the kernel runs on, and one that is "off" is dropped.
A group name such as "wait_states" or "races" stands for several checks. The severities come from
this table, then from the environment, then from `checks`. `findings` acts on them.
"""

from __future__ import annotations

import contextlib
import contextvars
import difflib
import functools
import os
from collections.abc import Iterator, Mapping

from cupygemm.emulator.diagnostics.known_faults import KnownFault, known_faults
from cupygemm.emulator.diagnostics.table import CHECKS, GROUPS, SEVERITIES, UNCHECKED

VARIABLE = "CUPYGEMM_EMULATE_CHECKS"


class Policy(dict[str, str]):
    """The severity of each check, by name.

    Attributes
    ----------
    records : bool
        Whether a launch needs the records for finding races, missing waits and the like.
    named : frozenset of str
        The checks whose severities the user has named.
    known : mapping of str to KnownFault
        By check, the known faults of CuPy, which are warnings for this reason alone.
    """

    def __init__(
        self, severities: Mapping[str, str] | None = None, named: frozenset[str] = frozenset()
    ) -> None:
        super().__init__(severities or {name: check.default for name, check in CHECKS.items()})
        self.records = any(self[name] != "off" for name in UNCHECKED)
        self.named = named
        self.known: Mapping[str, KnownFault] = {}

    def severity(self, check: str, *, may_be_meant: bool) -> str:
        """Return the severity of a finding; see `Fault.may_be_meant`."""
        found = self.get(check, "error")
        return "warn" if found == "error" and may_be_meant and check not in self.named else found

    def of_kernel(self, kernel: str) -> Policy:
        """Return the policy of a kernel's launches: known faults of CuPy's are warnings.

        Parameters
        ----------
        kernel : str
            Its symbol.
        """
        known = {
            check: fault
            for check, fault in known_faults(kernel).items()
            if self[check] == "error" and check not in self.named
        }
        if not known:
            return self
        found = Policy({**self, **dict.fromkeys(known, "warn")}, self.named)
        found.known = known
        return found

    def changed(self, severities: Mapping[str, str | bool]) -> Policy:
        """Return a copy of this policy with other severities for some checks or groups.

        Parameters
        ----------
        severities : mapping
            From names to severities; True is "error" and False is "off".

        Raises
        ------
        ValueError
            There is no such check or severity.
        """
        new, named = dict(self), self.named
        # Groups come first, so that a single check's severity overrides its group's in any order.
        for name in sorted(severities, key=lambda name: name not in GROUPS):
            given = severities[name]
            severity = given if isinstance(given, str) else "error" if given else "off"
            if severity not in SEVERITIES:
                raise ValueError(
                    f"{name}={given!r}: the severity must be one of {', '.join(SEVERITIES)}"
                )
            if name not in CHECKS and name not in GROUPS:
                raise ValueError(_unknown(name))
            checks_meant = GROUPS.get(name, (name,))
            new |= dict.fromkeys(checks_meant, severity)
            named |= set(checks_meant)
        return Policy(new, named)


def _unknown(name: str) -> str:
    """Return the message for a name that is neither a check nor a group."""
    known = [*CHECKS, *GROUPS]
    near = difflib.get_close_matches(name, known)
    more = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known)}"
    return f"the emulated device has no check {name!r}; {more}"


_ON = Policy()
_OFF = _ON.changed(dict.fromkeys(UNCHECKED, "off"))
_chosen: contextvars.ContextVar[Policy | None] = contextvars.ContextVar("checks", default=None)


def policy(enabled: bool | Policy | None = None) -> Policy:
    """Return the policy of a launch.

    Parameters
    ----------
    enabled : bool or Policy, optional
        The launch's own setting; by default that of `checks` or the environment.

    Raises
    ------
    ValueError
        The environment variable's value cannot be parsed.
    """
    if isinstance(enabled, Policy):
        return enabled
    if enabled is not None:
        return _ON if enabled else _OFF
    chosen = _chosen.get()
    return _from_environment(os.environ.get(VARIABLE, "")) if chosen is None else chosen


@functools.lru_cache(maxsize=8)
def _from_environment(text: str) -> Policy:
    """Return the policy for the variable's value: 0, 1, or ``name=severity,...``."""
    named = {"": _ON, "1": _ON, "0": _OFF}.get(text.strip())
    if named is not None:
        return named
    try:
        return _ON.changed(parse(text))
    except ValueError as err:
        raise ValueError(f"{VARIABLE}={text!r}: {err}") from None


def parse(text: str) -> dict[str, str]:
    """Return the severities of ``name=severity,name=severity``.

    Raises
    ------
    ValueError
        An entry does not have this form.
    """
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, equals, severity = entry.partition("=")
        if not equals:
            raise ValueError(f"{entry!r} must be 0, 1 or name=severity, as in wait_states=warn")
        found[name.strip()] = severity.strip()
    return found


@contextlib.contextmanager
def checks(enabled: bool | None = None, **severities: str | bool) -> Iterator[None]:
    """Set the checks of this thread's launches inside a ``with`` statement.

    Parameters
    ----------
    enabled : bool, optional
        True sets every check to its default. False makes launches faster by skipping the checks for
        missing waits and wait states, uses of values that were never written, and races. If
        omitted, the checks that are not named stay as they are.
    **severities : {"error", "warn", "off"}
        The severities of some checks or groups of checks, by name. "error" ends the launch with a
        `KernelFault`. "warn" lists the findings at the end of the launch, in a `KernelWarning` and
        in ``last_launch().warnings``, one for each kind and instruction. "off" drops them. True and
        False stand for "error" and "off". The names are in the documentation's table of checks.

    Raises
    ------
    ValueError
        There is no such check or severity.
    TypeError
        The first argument is a severity, without the names of checks.

    Examples
    --------
    >>> from cupygemm import emulator
    >>> with emulator.checks(False):
    ...     c = a @ b  # doctest: +SKIP
    >>> with emulator.checks(wait_states="warn", alignment="error"):
    ...     c = a @ b  # doctest: +SKIP
    """
    if isinstance(enabled, str):
        raise TypeError(
            f"checks({enabled!r}): name the checks that have this severity, such as "
            f"checks(lds_races={enabled!r}); the first argument is True or False for all of them"
        )
    base = policy(enabled)
    token = _chosen.set(base.changed(severities))
    try:
        yield
    finally:
        _chosen.reset(token)
