"""Execute the work of streams later than it was submitted, in an order that a seed chooses.

Without a seed, work is executed when it is submitted, which is one of the orders that a GPU may
choose. With a seed, work waits in its stream until the host waits for it, or until a call runs some
of it. The next entry is drawn from the first entries of all streams, among those whose
predecessors are done. `stream_order` gives each piece of work a clock of its predecessors, so
waiting for an event needs no entry of its own.

    submit ─► entry: number in its stream, clock of what comes before it ─► drawn ─► executed
"""

from __future__ import annotations

import collections
import contextvars
import random
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from cupygemm.emulator.diagnostics.findings import Site, at_site, call_site
from cupygemm.emulator.errors import EmulatorError
from cupygemm.emulator.interruptions import raised_by_a_handler

Queue = Hashable  # a stream, printed in reports
Clock = Mapping[Any, int]  # number of pieces of work of each stream that come before a point

VARIABLE = "CUPYGEMM_EMULATE_STREAM_ORDER"
"""The environment variable of the seed; empty or unset for none."""
_EAGERNESS = (0.0, 0.3, 0.6, 0.9)  # chances that a submission runs one more piece of work
_QUERY = 0.5  # the least such chance of a query, so that a loop of queries ends
_SPEEDS = (1, 4, 16)  # weights of streams in a draw
_LISTED = 3  # unordered pieces of work that a report names
_everything: weakref.WeakSet[Deferral] = weakref.WeakSet()


def run_deferred() -> None:
    """Execute all pending work, without recording that the host has waited for it."""
    for deferral in tuple(_everything):
        deferral.run_all()


class DeferredFault(EmulatorError):
    """Work failed after the call that submitted it had returned.

    Attributes
    ----------
    cause : Exception
        The reason of the failure.
    """

    def __init__(self, cause: Exception, message: str) -> None:
        self.cause = cause
        super().__init__(message)


def seed_of(text: str, name: str = VARIABLE) -> int | None:
    """Return the seed in a text, or None if the text is empty.

    Raises
    ------
    ValueError
        The text is not a nonnegative integer.
    """
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError(f"{name}={text}: the seed must be an integer of at least 0")
    return int(text)


@dataclass(eq=False, slots=True)
class Entry:
    """A piece of work that has not begun.

    Attributes
    ----------
    queue : Queue
    number : int
        Its number in the stream. An entry that only records the stream's state, such as the time of
        an event, has the number of the work before it.
    after : dict of Queue to int
        Its predecessors in other streams that were not done when it was submitted.
    label : str
        For reports; empty for an entry that only records the stream's state.
    run : callable
    context : contextvars.Context
        The submitter's context, with its checks and the line that warnings name.
    site : Site
        The line that submitted it.
    """

    queue: Queue
    number: int
    after: Clock
    label: str
    run: Callable[[], object]
    context: contextvars.Context
    site: Site

    def comes_after(self, queue: Queue, number: int) -> bool:
        """Tell whether it must wait for some work of a stream."""
        if self.queue is queue:
            return self.number > number
        return self.after.get(queue, 0) >= number


class Deferral:
    """The work of all streams that has not begun; safe to use from several threads.

    Attributes
    ----------
    lock : threading.RLock
        Held while work is chosen and executed.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._seed: int | None = None
        self._random = random.Random(0)  # noqa: S311  # no secret
        self._eagerness = 0.0
        self._speeds: dict[Queue, int] = {}
        self._pending: dict[Queue, collections.deque[Entry]] = {}
        self._running: list[Entry] = []  # nested in this order
        self._failures: list[DeferredFault] = []
        self._postponed: list[Callable[[], object]] = []
        _everything.add(self)

    # -- the seed --

    @property
    def seed(self) -> int | None:
        """The seed, or None if work is executed when it is submitted."""
        return self._seed

    def choose(self, seed: int | None) -> None:
        """Execute all pending work, then switch to another seed."""
        with self.lock:
            self.run_all()
            self._seed = seed
            self._random.seed(seed)
            self._draw_pace()

    def _draw_pace(self) -> None:
        self._eagerness = self._random.choice(_EAGERNESS)
        self._speeds.clear()

    # -- submission --

    @property
    def is_idle(self) -> bool:
        """Whether no work is pending."""
        return not self._pending

    def waits_only_in(self, queue: Queue) -> bool:
        """Whether all pending work is in one stream."""
        return self._pending.keys() <= {queue}

    def add(self, queue: Queue, clock: Clock, label: str, run: Callable[[], object]) -> None:
        """Submit work.

        Parameters
        ----------
        queue : Queue
        clock : dict of Queue to int
            The stream's clock with this work: its number, and its predecessors.
        label : str
            For reports; empty for an entry that only records the stream's state.
        run : callable
        """
        site = call_site()
        context = contextvars.copy_context()
        context.run(at_site.set, site)
        with self.lock:
            after = {
                other: number
                for other, number in clock.items()
                if other is not queue and self._has(other, number)
            }
            entry = Entry(queue, clock.get(queue, 0), after, label, run, context, site)
            self._pending.setdefault(queue, collections.deque()).append(entry)

    def drop(self, queue: Queue, number: int) -> None:
        """Discard a piece of work that has not begun, because its caller has given up."""
        with self.lock:
            self._keep(lambda each: each.queue is not queue or each.number != number)

    def after_running(self, action: Callable[[], object]) -> None:
        """Perform an action now, or at the end of the piece of work that this thread executes."""
        if self.lock.acquire(blocking=False):
            try:
                if self._running:  # in this thread: another one would hold the lock
                    self._postponed.append(action)
                    return
            finally:
                self.lock.release()
        action()

    # -- execution --

    def advance(self, least: float = 0.0) -> None:
        """Execute a random number of pieces of work, perhaps none."""
        with self.lock:
            chance = max(self._eagerness, least)
            while self._pending and self._random.random() < chance and self._step():
                pass

    def run_until(self, clock: Clock) -> None:
        """Execute work until all work that a clock includes is done."""
        if self._pending:
            with self.lock:
                while self._is_waiting(clock) and self._step():
                    pass

    def run_all(self) -> None:
        """Execute all work."""
        if self._pending:
            with self.lock:
                while self._step():
                    pass

    def is_done(self, clock: Clock) -> bool:
        """Tell whether all work that a clock includes is done; some work may run first."""
        if not self._pending:
            return True
        with self.lock:
            self.advance(_QUERY)
            return not self._is_waiting(clock)

    def _has(self, queue: Queue, number: int) -> bool:
        """Tell whether work of a stream up to a number is pending or running."""
        entries = self._pending.get(queue)
        if entries and entries[0].number <= number:
            return True
        return any(each.queue is queue and each.number <= number for each in self._running)

    def _is_waiting(self, clock: Clock) -> bool:
        return any(
            queue in clock and entries[0].number <= clock[queue]
            for queue, entries in self._pending.items()
        )

    def _is_ready(self, entry: Entry) -> bool:
        if any(each.queue is entry.queue for each in self._running):
            return False
        return not any(self._has(queue, number) for queue, number in entry.after.items())

    def _step(self) -> bool:
        """Execute one piece of work; return whether there was any."""
        ready = [queue for queue, entries in self._pending.items() if self._is_ready(entries[0])]
        if not ready:
            return False
        speeds = [self._speed(queue) for queue in ready]
        queue = self._random.choices(ready, speeds)[0]
        entry = self._pending[queue].popleft()
        if not self._pending[queue]:
            del self._pending[queue]
        self._running.append(entry)
        try:
            entry.context.run(entry.run)
        except Exception as err:
            if raised_by_a_handler(err) is not None:
                self._drop_followers(entry)
                raise
            self._fail(entry, err)
        except BaseException:
            self._drop_followers(entry)
            raise
        finally:
            self._running.remove(entry)
        if not self._running:
            self._settle()
        return True

    def _settle(self) -> None:
        """Perform the postponed actions, and draw another pace if no work is pending."""
        while self._postponed:
            self._postponed.pop(0)()
        if not self._pending:
            self._draw_pace()

    def _speed(self, queue: Queue) -> int:
        found = self._speeds.get(queue)
        if found is None:
            found = self._speeds[queue] = self._random.choice(_SPEEDS)
        return found

    def _keep(self, wanted: Callable[[Entry], bool]) -> None:
        for queue, entries in tuple(self._pending.items()):
            kept = collections.deque(filter(wanted, entries))
            if kept:
                self._pending[queue] = kept
            else:
                del self._pending[queue]

    # -- failures --

    def _drop_followers(self, entry: Entry) -> int:
        """Discard all work that comes after an entry; return the number of pieces."""
        dropped, before = [entry], -1
        while len(dropped) != before:
            before = len(dropped)
            dropped += [
                each
                for each in self._waiting()
                if each not in dropped
                and any(each.comes_after(gone.queue, gone.number) for gone in dropped)
            ]
        self._keep(lambda each: each not in dropped)
        return sum(bool(each.label) for each in dropped) - 1

    def _fail(self, entry: Entry, cause: Exception) -> None:
        count = self._drop_followers(entry)
        lines = [str(cause), f"  {entry.label} was submitted at {entry.site}"]
        if count:
            lines.append(f"  {count} later piece{'s' * (count > 1)} of work after it did not begin")
        lines += self.unordered(entry.queue, entry.number)
        text = "\n".join(lines)
        if isinstance(cause, EmulatorError):
            cause.args = (text,)  # all holders of this exception read the same text
        self._failures.append(DeferredFault(cause, text))

    def unordered(self, queue: Queue, number: int) -> list[str]:
        """Return lines that name the pending work that is unordered with some work."""
        with self.lock:
            found = [
                f"    {each.label} in {each.queue}, submitted at {each.site}"
                for each in self._waiting()
                if each.label and not each.comes_after(queue, number)
            ]
        heading = "  nothing orders it with work of other streams that has not begun:"
        return [heading, *found[:_LISTED]] if found else []

    def _waiting(self) -> list[Entry]:
        return [each for entries in self._pending.values() for each in entries]

    def raise_failure(self) -> None:
        """Raise the first failure of work since the last one was raised, if there is one."""
        if self._failures:
            with self.lock:
                failures, self._failures = self._failures, []
            if failures:
                raise failures[0]

    def forget_failures(self) -> None:
        """Discard the failures that were not raised."""
        with self.lock:
            self._failures.clear()

    def report_unheard(self) -> None:
        """Print, when the program ends, the failures for which it never waited."""
        for failure in self._failures:
            sys.stderr.write(f"cupygemm: nothing waited for work that failed:\n{failure}\n")
        self._failures.clear()
