"""`ColumnsOfQ`: the columns of Q = Q_0 Q_1 ..., formed while the last panels are factored.

A column of Q needs only the reflections of this and of all earlier columns, since later reflections
do not change its column of the identity. So columns are formed strip by strip, when their
reflections are known. These are applied from the last to the first::

    side stream      | factor panels of Q_2     | factor panels of Q_3            | ...
    current stream   | updates, columns of Q_1: | updates, columns of Q_2:        |
                     | apply Q_1, Q_0           | apply Q_2, Q_1, Q_0             |

The steps of a strip run where updates leave time. The remaining steps run at the end, for all
strips together.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from cupygemm._solvers.common.matrices import Matrices, zeros
from cupygemm._solvers.qr.reflectors import Reflector


class _Step(NamedTuple):
    """The application of some reflections to some columns of Q."""

    reflector: Reflector
    columns: range

    @property
    def is_first(self) -> bool:
        """Return whether the columns are still columns of the identity."""
        return self.columns.start in self.reflector.columns

    @property
    def cost(self) -> int:
        """Return its multiplications and additions."""
        products = 2 if self.is_first else 4
        v = self.reflector.v
        return products * v.m * len(self.reflector.columns) * len(self.columns)


class ColumnsOfQ:
    """The first columns of Q.

    Parameters
    ----------
    a : Matrices
        The matrix that is factored.
    columns : int
        The number of columns.
    strip : int
        The most columns that are formed at a time while panels are factored.

    Attributes
    ----------
    q : Matrices
    """

    def __init__(self, a: Matrices, columns: int, strip: int) -> None:
        self.q = zeros(a.batches, a.m, columns, a.dtype)
        diagonal = self.q.array.reshape(a.batches, -1)[:, :: self.q.pitch + 1]
        diagonal[:, :columns] = 1
        self._strip = strip
        self._reflectors: list[Reflector] = []
        self._steps: deque[_Step] = deque()

    def add(self, reflector: Reflector) -> None:
        """Append reflections."""
        self._reflectors.append(reflector)
        self._plan(reflector.columns)

    def has_steps(self) -> bool:
        """Tell whether any step can run now."""
        return bool(self._steps)

    @property
    def pending(self) -> int:
        """Return the multiplications and additions of all steps that can run now."""
        return sum(step.cost for step in self._steps)

    def work(self, budget: int) -> None:
        """Run steps of about this number of multiplications and additions."""
        while self._steps and budget > self._steps[0].cost // 2:
            step = self._steps.popleft()
            budget -= step.cost
            self._do(step)

    def finish(self) -> Matrices:
        """Run all remaining steps, and return Q."""
        formed = self._reflectors[-1].columns.stop
        self._plan(range(formed, self.q.n))
        while self._steps:
            last = max(self._steps, key=lambda step: step.reflector.columns.start).reflector
            columns = [step.columns for step in self._steps if step.reflector is last]
            # They are adjacent and in order. Columns of the identity need no separate step.
            last.apply(self.q, range(columns[0].start, columns[-1].stop), inverse=False)
            self._steps = deque(step for step in self._steps if step.reflector is not last)
        return self.q

    def _plan(self, columns: range) -> None:
        for first in range(columns.start, columns.stop, self._strip):
            strip = range(first, min(first + self._strip, columns.stop))
            self._steps.extend(_Step(each, strip) for each in reversed(self._reflectors))

    def _do(self, step: _Step) -> None:
        if step.is_first:
            step.reflector.apply_to_identity(self.q, step.columns)
        else:
            step.reflector.apply(self.q, step.columns, inverse=False)
