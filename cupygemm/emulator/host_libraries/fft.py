"""The stand-in libhipfft.so.0: plans of one to three axes, computed by SciPy.

A plan has two layouts, for a transform's input and output. Transforms are not scaled, as in hipFFT.
No plan needs a work area.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from cupygemm.emulator.host_libraries.library import Call, HostLibrary, LibraryError, implements
from cupygemm.emulator.runtime.status import store_int, store_size

VERSION = 10038  # rocFFT 1.0.38, of ROCm 7.0
FORWARD, BACKWARD = -1, 1
_C2C, _R2C, _C2R = 0x29, 0x2A, 0x2C
_TYPES = {
    kind | precision: (kind, "c16" if precision else "c8")
    for kind in (_C2C, _R2C, _C2R)
    for precision in (0, 0x40)
}


@dataclass(frozen=True)
class Layout:
    """The memory layout of a batch.

    Attributes
    ----------
    shape : tuple of int
        (batch, *axes).
    strides : tuple of int
        Strides in elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Transform:
    """The transform of a plan.

    Attributes
    ----------
    kind : int
        C2C, R2C or C2R: hipfftType without its precision.
    dtype : str
        Type of complex elements.
    lengths : tuple of int
    batch : int
    read, written : Layout or None
        None for the default layout, in which an in-place transform pads rows of real numbers.
    """

    kind: int
    dtype: str
    lengths: tuple[int, ...]
    batch: int
    read: Layout | None = None
    written: Layout | None = None

    @property
    def complex_lengths(self) -> tuple[int, ...]:
        """The lengths on the complex side."""
        if self.kind == _C2C:
            return self.lengths
        return (*self.lengths[:-1], self.lengths[-1] // 2 + 1)

    def layout(self, side: str, *, in_place: bool) -> Layout:
        """Return the layout of a side, "read" or "written"."""
        given: Layout | None = getattr(self, side)
        if given is not None:
            return given
        rows = self.complex_lengths
        lengths = self.lengths if self.is_real(side) else rows
        if self.is_real(side):
            rows = (*rows[:-1], 2 * rows[-1]) if in_place else lengths
        return packed(self.batch, lengths, rows)

    def is_real(self, side: str) -> bool:
        """Tell whether a side has real numbers."""
        return self.kind == (_R2C if side == "read" else _C2R)


def packed(batch: int, lengths: Sequence[int], embed: Sequence[int]) -> Layout:
    """Return the layout of arrays of `lengths`, each inside one of the lengths `embed`."""
    return embedded(batch, lengths, embed, 1, int(np.prod(embed)))


def embedded(
    batch: int, lengths: Sequence[int], embed: Sequence[int], stride: int, distance: int
) -> Layout:
    """Return hipFFT's advanced layout; `stride` is that of the last axis."""
    steps = [stride * int(np.prod(embed[axis + 1 :])) for axis in range(len(lengths))]
    return Layout((batch, *lengths), (distance, *steps))


@dataclass
class Plan:
    """A plan between its creation and its destruction."""

    transform: Transform | None = None
    stream: int = 0
    work_area: int = 0


class HipFft(HostLibrary):
    """The part of hipFFT that CuPy binds."""

    stem = "hipfft"
    soname = "libhipfft.so.0"
    statuses = {  # noqa: RUF012
        "invalid_plan": 1,
        "alloc_failed": 2,
        "invalid_type": 3,
        "invalid_value": 4,
        "internal_error": 5,
        "execution_failed": 6,
        "invalid_size": 8,
        "not_supported": 14,
    }

    def __init__(self, devices: Any) -> None:
        super().__init__(devices)
        self._plans: dict[int, Plan] = {}

    def stream_of(self, handle: int) -> int:
        """Return the stream of a plan; see `HostLibrary`."""
        return self._plans[handle].stream if handle in self._plans else 0

    def _plan(self, plan: int) -> Plan:
        if plan not in self._plans:
            raise LibraryError("invalid_plan", f"plan 0x{plan:x} does not exist")
        return self._plans[plan]

    @implements("hipfftGetVersion")
    def _get_version(self, call: Call, version: int) -> None:
        store_int(version, VERSION)

    @implements("hipfftCreate")
    def _create(self, call: Call, plan: int) -> None:
        number = next(self._handles)
        self._plans[number] = Plan()
        store_size(plan, number)

    @implements("hipfftDestroy")
    def _destroy(self, call: Call, plan: int) -> None:
        self._plan(plan)
        del self._plans[plan]

    @implements("hipfftSetStream")
    def _set_stream(self, call: Call, plan: int, stream: int) -> None:
        self._plan(plan).stream = stream

    @implements("hipfftSetAutoAllocation")
    def _set_auto_allocation(self, call: Call, plan: int, automatic: int) -> None:
        self._plan(plan)

    @implements("hipfftSetWorkArea")
    def _set_work_area(self, call: Call, plan: int, work_area: int) -> None:
        self._plan(plan).work_area = work_area

    @implements("hipfftMakePlan1d")
    def _make_1d(
        self, call: Call, plan: int, n: int, kind: int, batch: int, work_size: int
    ) -> None:
        self._make(call, plan, (n,), kind, batch, work_size, None, None)

    @implements("hipfftMakePlanMany")
    def _make_many(
        self,
        call: Call,
        plan: int,
        rank: int,
        n: int,
        inembed: int,
        istride: int,
        idist: int,
        onembed: int,
        ostride: int,
        odist: int,
        kind: int,
        batch: int,
        work_size: int,
    ) -> None:
        call.check(rank in {1, 2, 3}, f"rank {rank}: plans have 1 to 3 axes")
        call.check(n != 0, "n is a null pointer")
        lengths = _integers(n, rank)
        if not inembed or not onembed:
            self._make(call, plan, lengths, kind, batch, work_size, None, None)
            return
        read = _integers(inembed, rank), istride, idist
        written = _integers(onembed, rank), ostride, odist
        self._make(call, plan, lengths, kind, batch, work_size, read, written)

    def _make(
        self,
        call: Call,
        plan: int,
        lengths: tuple[int, ...],
        kind: int,
        batch: int,
        work_size: int,
        read: tuple[tuple[int, ...], int, int] | None,
        written: tuple[tuple[int, ...], int, int] | None,
    ) -> None:
        known = self._plan(plan)
        call.check(min(lengths) >= 1, f"lengths {lengths}: each is at least 1", "invalid_size")
        call.check(batch >= 1, f"batch={batch}: at least 1", "invalid_size")
        call.check(kind in _TYPES, f"0x{kind:x} is no hipfftType", "invalid_type")
        transform = Transform(*_TYPES[kind], lengths, batch)
        if read is not None and written is not None:
            sides = []
            for side, (embed, stride, distance) in (("read", read), ("written", written)):
                of_side = lengths if transform.is_real(side) else transform.complex_lengths
                inside = all(a >= b for a, b in zip(embed[1:], of_side[1:], strict=True))
                call.check(inside, f"embed {embed} is less than {of_side}", "invalid_size")
                call.check(stride >= 1, f"stride {stride}: at least 1", "invalid_size")
                sides.append(embedded(batch, of_side, embed, stride, distance))
            transform = Transform(*_TYPES[kind], lengths, batch, *sides)
        known.transform = transform
        store_size(work_size, 0)

    @implements("hipfftExecC2C", "hipfftExecZ2Z")
    def _complex(self, call: Call, plan: int, read: int, written: int, direction: int) -> None:
        call.check(direction in {FORWARD, BACKWARD}, f"direction {direction} is neither -1 nor 1")
        self._execute(call, plan, _C2C, read, written, direction)

    @implements("hipfftExecR2C", "hipfftExecD2Z")
    def _real_to_complex(self, call: Call, plan: int, read: int, written: int) -> None:
        self._execute(call, plan, _R2C, read, written, FORWARD)

    @implements("hipfftExecC2R", "hipfftExecZ2D")
    def _complex_to_real(self, call: Call, plan: int, read: int, written: int) -> None:
        self._execute(call, plan, _C2R, read, written, BACKWARD)

    def _execute(
        self, call: Call, plan: int, kind: int, read: int, written: int, direction: int
    ) -> None:
        made = self._plan(plan).transform
        if made is None:
            raise LibraryError("invalid_plan", "no hipfftMakePlan was called for the plan")
        double = call.function[-1] in "ZD"
        fits = made.kind == kind and (made.dtype == "c16") == double
        call.check(fits, "the plan was made for another type", "invalid_type")
        call.check(read != 0 and written != 0, "a null pointer")
        types = {True: np.dtype("f8" if double else "f4"), False: np.dtype(made.dtype)}
        layouts = [made.layout(side, in_place=read == written) for side in ("read", "written")]
        source = call.read(
            "input", read, layouts[0].shape, types[made.is_real("read")], layouts[0].strides
        )
        axes = tuple(range(1, source.ndim))
        if kind == _R2C:
            result = scipy.fft.rfftn(source, axes=axes)
        elif kind == _C2R:
            result = scipy.fft.irfftn(source, s=made.lengths, axes=axes, norm="forward")
        elif direction == FORWARD:
            result = scipy.fft.fftn(source, axes=axes)
        else:
            result = scipy.fft.ifftn(source, axes=axes, norm="forward")
        target = call.write(
            "output", written, layouts[1].shape, types[made.is_real("written")], layouts[1].strides
        )
        target[...] = result


def _integers(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_int * count).from_address(address))
