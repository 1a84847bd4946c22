"""The exceptions of the emulated device.

An execution unit raises a `Fault` that names the wave, the lane and the address. The run loop turns
it into a `KernelFault`, which adds the kernel, the workgroup, the program counter and the
instruction.
"""

from __future__ import annotations

import copyreg
import html
from itertools import zip_longest
from typing import Any


class EmulatorError(RuntimeError):
    """The base class of the emulated device's errors."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text and the attributes; subclasses have other parameters than the text."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UnsupportedInstruction(EmulatorError):
    """The code object holds an instruction that the target or this emulator does not have."""


class Fault(Exception):
    """An error that an execution unit found; `run` turns it into a `KernelFault`.

    Parameters
    ----------
    kind : str
        Short class of the fault, e.g. ``"out-of-bounds global read"``.
    detail : str
        What happened and where to look, in one or more lines.
    wave : int
        Position of the wave within the executing group (not the wave id); -1 when unknown.
    lane : int
        Lane of the wave, -1 when the fault has none.
    address : int or None
        Byte address, if the fault has one.
    is_global : bool
        Whether `address` is in device memory rather than an offset into LDS or private memory.
    lanes : tuple of int
        All lanes of the wave with the same fault, in ascending order; the first is `lane`.
    check : str
        The check that found it, as in `table.CHECKS`; "" for a fault that always ends a launch.
    may_be_meant : bool
        Whether the code may be intended, so that the finding is a warning unless the user has named
        the check.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        wave: int = -1,
        lane: int = -1,
        address: int | None = None,
        *,
        is_global: bool = False,
        lanes: tuple[int, ...] = (),
        check: str = "",
        may_be_meant: bool = False,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.wave = wave
        self.lane = lane
        self.address = address
        self.is_global = is_global
        self.check = check
        self.may_be_meant = may_be_meant
        self.lanes = lanes or ((lane,) if lane >= 0 else ())


class KernelFault(EmulatorError):
    """A kernel made an error that a GPU would not report, or that would end the kernel.

    Attributes
    ----------
    kernel : str
    workgroup : tuple of int
        ``(x, y, z)`` workgroup id; empty when unknown.
    wave : int
        Wave within the workgroup, -1 when unknown.
    lane : int
        The first of `lanes`; -1 for a fault of the whole wave.
    lanes : tuple of int
        The faulting lanes of the wave, ascending; empty for a fault of the whole wave.
    pc : int
        Byte offset of the instruction from the kernel's entry.
    instruction : str
        Its assembly text.
    kind, detail : str
    check : str
        The check that found it, which `checks` can make a warning; "" for a fault that always ends
        a launch.
    address : int or None
    source : tuple of (str, int) or None
        File and line of the instruction; known if CuPy compiled the kernel from source, or it was
        compiled with ``-g``.
    call_sites : tuple of (str, int)
        Where the function of that line was inlined: the innermost call first, the kernel's own line
        last. Empty if the line is the kernel's.
    quotes : tuple of str
        The texts of these lines, `source` first; "" for an unknown line.
    """

    def __init__(
        self,
        kernel: str,
        workgroup: tuple[int, ...],
        wave: int,
        lane: int,
        pc: int,
        instruction: str,
        kind: str,
        detail: str,
        address: int | None = None,
        source: tuple[str, int] | None = None,
        lanes: tuple[int, ...] = (),
        check: str = "",
        call_sites: tuple[tuple[str, int], ...] = (),
        quotes: tuple[str, ...] = (),
    ) -> None:
        self.kernel = kernel
        self.workgroup = workgroup
        self.wave = wave
        self.lane = lane
        self.lanes = lanes or ((lane,) if lane >= 0 else ())
        self.pc = pc
        self.instruction = instruction
        self.kind = kind
        self.detail = detail
        self.check = check
        self.address = address
        self.source = source
        self.call_sites = call_sites
        self.quotes = quotes
        super().__init__(self.report())

    def _repr_html_(self) -> str:
        first, _, rest = self.report().partition("\n")
        return (
            f'<p style="color:#b2182b"><b>{html.escape(first)}</b></p>'
            f'<pre style="font-size:80%;overflow-x:auto">{html.escape(rest)}</pre>'
        )

    def report(self) -> str:
        """Return the report as text, in the format of a compiler's diagnostic."""
        where = f"kernel {self.kernel}"
        if self.workgroup:
            where += f", workgroup ({', '.join(map(str, self.workgroup))})"
        if self.wave >= 0:
            where += f", wave {self.wave}"
        if self.lanes:
            where += f", lane{'s' * (len(self.lanes) > 1)} {spans(self.lanes)}"
        lines = [f"{self.kind}", f"  in {where}", f"  at pc {self.pc:+#x}: {self.instruction}"]
        places = [f"{file}:{number}" for file, number in ([self.source] if self.source else [])]
        places += [f"inlined at {file}:{number}" for file, number in self.call_sites]
        for place, text in zip_longest(places, self.quotes[: len(places)], fillvalue=""):
            lines.append(f"  {place}" + f": {text}" * bool(text))
        if self.address is not None:
            lines.append(f"  address 0x{self.address:x}")
        lines += [f"  {line}" for line in self.detail.splitlines()]
        return "\n".join(lines)


class SourceFault(EmulatorError):
    """A fault in HIP source, found when its code is loaded.

    Parameters
    ----------
    text : str
    check : str
        The name of the check that found it.
    """

    def __init__(self, text: str, check: str) -> None:
        super().__init__(text)
        self.check = check


class ArgumentFault(SourceFault):
    """Arguments that a kernel would misread, found before the launch starts."""


class KernelWarning(EmulatorError, RuntimeWarning):
    """The findings of a launch whose checks are warnings, listed at the end of the launch."""


def lanes_of(mask: int) -> tuple[int, ...]:
    """Return the lanes of a mask in ascending order."""
    return tuple(lane for lane in range(64) if mask >> lane & 1)


def spans(numbers: tuple[int, ...]) -> str:
    """Return ascending numbers as text, with runs of consecutive numbers as ranges.

    >>> spans((0, 1, 2, 7, 9, 10))
    '0-2, 7, 9-10'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
