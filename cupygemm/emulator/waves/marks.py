"""The undefined bits of registers and memory, and their origins.

Each lane of each vector register and each scalar register has a word of undefined bits.
`suspect_vector` and `suspect_scalar` are bit masks over the register files, with a bit
set if any wave of the batch may be affected. In the common case, the run loop tests these masks and
does nothing else. A flag per wave marks the vector registers that the wave has never written. A
write to some lanes of such a register counts as defining all of it, since the lanes of another
branch are not read.

An *origin* is an integer that identifies a load or a register; see native/definedness.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.errors import Fault
from cupygemm.emulator.isa.instruction import register_name, registers
from cupygemm.emulator.waves.marked_values import divided_by_zero, marked_value, value_of_lane
from cupygemm.emulator.waves.reports import instruction_at, written_around
from cupygemm.emulator.waves.state import rows_of, zeroed_rows

if TYPE_CHECKING:
    from cupygemm.emulator.waves.state import Group, State

ALL = 0xFFFFFFFF
SCC = 128  # its row among the scalar registers
COMPUTED, _SPACE, BY_MATRIX, _INACTIVE, _UNWRITTEN = 1, 6, 1 << 30, 1 << 29, 1 << 28
_BY_ZERO = _INACTIVE | _UNWRITTEN
_FROM_REGISTER, _FROM_GLOBAL, _FROM_LDS, _FROM_PRIVATE = 0, 2, 4, 6
FIRST_SCALAR = 512  # number of s0 among the registers that are origins
_KINDS = {
    _FROM_REGISTER: "uninitialised register",
    _FROM_GLOBAL: "uninitialised memory",
    _FROM_LDS: "uninitialised LDS",
    _FROM_PRIVATE: "uninitialised private memory",
}


_INT32 = np.iinfo(np.int32)
_INITIAL_ORIGINS = 8 * (FIRST_SCALAR + np.arange(129, dtype=np.int32)[:, None])
_READ_WHERE_MARKED = ("lds_undefined", "lds_origin", "undefined_address")


def origin_of_lane(pc: int) -> int:
    """Return the origin of a value that an instruction has read in a lane that is off."""
    return 2 * pc | _FROM_LDS | _INACTIVE


def origin_of_division(pc: int) -> int:
    """Return the origin of the result of an integer division by zero."""
    return 2 * pc | _BY_ZERO


def origin_of_marker(pc: int) -> int:
    """Return the origin of the value of a variable that nothing has written."""
    return 2 * pc | _UNWRITTEN


class Register(NamedTuple):
    """A register file, ``"v"`` or ``"s"``, and the number of a register in it."""

    file: str
    number: int


def marks_of(state: State) -> Marks:
    """Return the marks of a batch; the first call creates them."""
    found: Marks | None = state.units.get("marks")
    if found is None:
        found = state.units["marks"] = Marks(state)
    return found


class Marks:
    """The undefined bits of one batch.

    Attributes
    ----------
    undefined : uint32 (512, waves, 64)
        Undefined bits of the vector registers.
    undefined_scalar : uint32 (129, waves)
        Undefined bits of the scalar registers. In the row of SCC, all bits are set or none.
    unwritten : bool (512, waves)
        Vector registers that a wave has never written; `undefined` does not include them.
    origin, origin_scalar : int32 (512, waves), (129, waves)
        Where the undefined bits of a register come from.
    suspect_vector, suspect_scalar : int
        Bit masks of the registers that are not defined in all waves.
    marked : int
        Bit mask of the vector registers that may have bits in `undefined`.
    """

    def __init__(self, state: State) -> None:
        waves, lds = state.num_waves, state.lds
        # Zeroed pages are not allocated until they are accessed, and most never are.
        self.undefined = zeroed_rows(state.vgpr)
        self.undefined_scalar = np.zeros((129, waves), np.uint32)
        self.origin = np.zeros((512, waves), np.int32)
        self.origin_scalar = np.zeros((129, waves), np.int32)
        self.unwritten = np.zeros((512, waves), bool)
        self.suspect_vector = self.suspect_scalar = 0
        self.marked = 0
        self._ever_marked = 0
        self._used: tuple[int, int] | None = None
        self._memory = {
            "lds_undefined": np.zeros_like(lds),
            "lds_origin": np.zeros((len(lds), -(-lds.shape[1] // 4)), np.int32),
            "scratch_defined": np.zeros_like(state.scratch),
            "scratch_origin": np.zeros(state.scratch.size // 4 + 1, np.int32),
            "undefined_address": np.zeros(waves, np.uint64),
        }
        self._addresses: dict[int, Any] = {}  # of each wave, by the pc of a load
        self._indices: dict[int, list[Any]] = {}  # least and greatest of each lane, by marker's pc

    def arrays(self) -> dict[str, Any]:
        """Return the arrays that C reads and writes, by their names in ``struct machine``."""
        return {
            "undefined": self.undefined,
            "undefined_scalar": self.undefined_scalar,
            "origin": self.origin,
            "origin_scalar": self.origin_scalar,
            **self._memory,
        }

    def start(self, vector: int, scalar: int) -> None:
        """Mark all registers as unwritten, except those in two bit masks."""
        self.suspect_vector = ~vector & (1 << 512) - 1
        self.suspect_scalar = ~scalar & (1 << 128) - 1
        if not (self.suspect_vector or self.suspect_scalar):
            return
        defined = scalar | 1 << SCC
        if self._used is None:
            self.unwritten.fill(True)
            self.unwritten[rows_of(vector)] = False
            self.undefined_scalar.fill(ALL)
            self.undefined_scalar[rows_of(defined)] = 0
            self.origin_scalar[:] = _INITIAL_ORIGINS
            return
        used_vector, used_scalar = self._used
        self.unwritten[rows_of(used_vector & ~vector)] = True
        self.undefined_scalar[rows_of(used_scalar & ~defined)] = ALL
        self.undefined_scalar[rows_of(used_scalar & defined)] = 0
        rows = rows_of(used_scalar)
        self.origin_scalar[rows] = _INITIAL_ORIGINS[rows]

    def restart(self, used: tuple[int, int] | None = None) -> None:
        """Discard the undefined bits of another batch; `start` is called next.

        Parameters
        ----------
        used : tuple of int, optional
            Bit masks of the vector and the scalar registers that instructions have used since the
            last `start`, whose arguments were those of the next: only their marks have changed.
            None stands for all.
        """
        self._used = used
        for register in registers(self._ever_marked | self.marked):
            self.undefined[register] = 0
        self.marked = self._ever_marked = 0
        self._addresses.clear()
        self._indices.clear()
        for array in self.zeroed():
            array.fill(0)

    def zeroed(self) -> list[NDArray[Any]]:
        """Return the marks of memory, which are 0 when a batch starts."""
        return [array for name, array in self._memory.items() if name not in _READ_WHERE_MARKED]

    # -- vector registers --------------------------------------------------------------------------

    def expose(self, group: Group, register: int) -> bool:
        """Update `undefined` for a register and return whether any lane has undefined bits."""
        bit = 1 << register
        if not self.suspect_vector & bit:
            return False
        unwritten = self.unwritten[register, group.waves]
        if unwritten.any():
            waves = group.wave_ids[unwritten]
            self.undefined[register, waves] = ALL
            self.origin[register, waves] = 8 * register
            self.unwritten[register, waves] = False
            self.marked |= bit
            self._ever_marked |= bit
            return True
        return bool(self.marked & bit) and bool(self.undefined[register, group.waves].any())

    def is_marked(self, register: int) -> bool:
        """Return whether the register may have undefined bits in a lane of some wave."""
        return bool(self.marked >> register & 1)

    def written(self, group: Group, register: int) -> None:
        """Record that the group writes a register; the caller sets the undefined bits."""
        self.unwritten[register, group.waves] = False

    def settle(self, register: int, *, marked: bool = False) -> None:
        """Update the bit masks for a vector register that was written."""
        bit = 1 << register
        if marked or self.marked & bit:
            if self.undefined[register].any():
                self.marked |= bit
                self._ever_marked |= bit
                self.suspect_vector |= bit
                return
            self.marked &= ~bit
        if self.unwritten[register].any():
            self.suspect_vector |= bit
        else:
            self.suspect_vector &= ~bit

    def expect(self, register: int) -> None:
        """Record that C is about to set undefined bits of a register."""
        self.marked |= 1 << register
        self._ever_marked |= 1 << register
        self.suspect_vector |= 1 << register

    def take_marked(self, marked: int) -> None:
        """Take over the bit mask of the registers that may have bits in `undefined`."""
        self.marked = marked
        self._ever_marked |= marked

    def clear(self, group: Group, register: int, bits: int = ALL) -> None:
        """Record that the group writes defined bits to its active lanes of a register."""
        self.written(group, register)
        if self.marked >> register & 1:
            rows = self.undefined[register, group.waves]
            rows = np.where(group.mask, rows & np.uint32(~bits & ALL), rows)
            self.undefined[register, group.waves] = rows
        self.settle(register)

    # -- scalar registers --------------------------------------------------------------------------

    def is_exposed_scalar(self, group: Group, register: int) -> bool:
        """Return whether a scalar register has undefined bits in some wave of the group."""
        suspect = bool(self.suspect_scalar >> register & 1)
        return suspect and bool(self.undefined_scalar[register, group.waves].any())

    def settle_scalar(self, register: int) -> None:
        """Update the bit mask for a scalar register that was written."""
        if self.undefined_scalar[register].any():
            self.suspect_scalar |= 1 << register
        else:
            self.suspect_scalar &= ~(1 << register)

    # -- origins -----------------------------------------------------------------------------------

    def propagate_origins(
        self, group: Group, sources: list[Register], targets: list[Register], flags: int
    ) -> None:
        """Propagate origins: each target gets the origin of the first source with undefined bits.

        It is called before the undefined bits of the targets change. `flags` states how the bits
        reach the targets: COMPUTED, BY_MATRIX, both or neither.
        """
        found = np.zeros(group.count, np.int32)
        anywhere = np.zeros(group.count, bool)
        for file, register in reversed(sources):
            if file == "v":
                affected = self.undefined[register, group.waves].any(axis=1)
                origins = self.origin
            else:
                affected = self.undefined_scalar[register, group.waves] != 0
                origins = self.origin_scalar
            found = np.where(affected, origins[register, group.waves], found)
            anywhere |= affected
        found |= np.int32(flags)
        for file, register in targets:
            into = self.origin if file == "v" else self.origin_scalar
            into[register, group.waves] = np.where(anywhere, found, into[register, group.waves])

    def note_load(self, pc: int, first: int, count: int, *, scalar: bool) -> None:
        """Record that a load found undefined bytes; C has marked the registers."""
        addresses = self._addresses.setdefault(pc, np.zeros_like(self._memory["undefined_address"]))
        found = self._memory["undefined_address"]
        np.copyto(addresses, found, where=found != 0)
        for register in range(first, first + count):
            if scalar:
                self.settle_scalar(register)
            else:
                self.settle(register, marked=True)

    def note_index(self, group: Group, register: int) -> None:
        """Record the index that a marker's register holds (runtime/local_bounds.py)."""
        state, waves = group.state, group.waves
        now = state.vgpr[register, waves].view(np.int32)
        kept = self._indices.get(state.current_pc)
        if kept is None:
            shape = state.num_waves, now.shape[1]
            kept = [np.full(shape, bound, np.int32) for bound in (_INT32.max, _INT32.min)]
            self._indices[state.current_pc] = kept
        for array, choose in zip(kept, (np.minimum, np.maximum), strict=True):
            array[waves] = np.where(group.mask, choose(array[waves], now), array[waves])

    def _index_at(self, pc: int, wave: int, lane: int) -> tuple[int, int] | None:
        """Return the least and the greatest index that a lane has had at a marker."""
        seen = self._indices.get(pc)
        if seen is None or lane < 0:
            return None
        least, greatest = (int(each[wave, lane]) for each in seen)
        return least, greatest

    def fault(
        self,
        state: State,
        register: tuple[str, int],
        wave: int,
        use: str,
        *,
        position: int,
        lanes: tuple[int, ...] = (),
    ) -> Fault:
        """Return the fault for an undefined value that would change a result.

        Parameters
        ----------
        state : State
        register : tuple of str and int
            File and number of the register that is used, as in `Register`.
        wave : int
            Index of the wave in the batch.
        use : str
            How the value is used, as a predicate: ``"is an address"``.
        position : int
            Position of the wave within the group.
        lanes : tuple of int
            The lanes that use the value.
        """
        file, number = register
        origin = int((self.origin if file == "v" else self.origin_scalar)[number, wave])
        origin &= ~BY_MATRIX
        name = "scc" if register == Register("s", SCC) else register_name(file, number)
        space, lane = origin & _SPACE, lanes[0] if lanes else -1
        used = f"{name} {use}; it {'depends on' if origin & COMPUTED else 'is'} "
        pc = origin >> 3 << 2
        if origin & _BY_ZERO == _BY_ZERO:
            pc &= ~(_BY_ZERO >> 1)
            return divided_by_zero(state, used, pc, wave=position, lanes=lanes)
        if origin & _UNWRITTEN:
            pc &= ~(_UNWRITTEN >> 1)
            copied = not origin & COMPUTED
            index = self._index_at(pc, wave, lane)
            return marked_value(
                state, used, pc, index, is_copied=copied, wave=position, lanes=lanes
            )
        if origin & _INACTIVE:
            return value_of_lane(state, used, pc & ~(_INACTIVE >> 1), wave=position, lanes=lanes)
        if space == _FROM_REGISTER:
            detail = self._unwritten_register(register, name, origin, use)
            return Fault(
                _KINDS[space], detail, wave=position, lane=lane, lanes=lanes, check="uninitialised"
            )
        address = self._loaded_from(state, pc, wave)
        is_global = space == _FROM_GLOBAL
        if is_global:
            place = state.memory.describe(address, 1)
        else:
            where = "LDS" if space == _FROM_LDS else "private memory"
            place = f"{where} that nothing has written"
            place += f", from byte 0x{address:x} on" if address >= 0 else ""
        kind = "global memory that nothing has written" if is_global else place
        detail = (
            f"{name} {use}; it {'depends on' if origin & COMPUTED else 'holds'} {kind}, loaded by\n"
            f"  {instruction_at(state, pc)}"
        )
        if is_global:
            detail += f"\nfrom {place}"
            around = written_around(state, address)
            detail += f"\n{around}" * bool(around)
        return Fault(
            _KINDS[space],
            detail,
            wave=position,
            lane=lane,
            address=address if address >= 0 else None,
            is_global=is_global,
            lanes=lanes,
            check="uninitialised",
        )

    def _loaded_from(self, state: State, pc: int, wave: int) -> int:
        """Return the address at which this wave or one before it loaded undefined bytes, or -1."""
        addresses = self._addresses.get(pc)
        if addresses is None:
            return -1
        mates = addresses[state.workgroup == state.workgroup[wave]]  # they may pass it on in LDS
        return int(addresses[wave] or next(iter(mates[mates != 0]), 0)) - 1

    @staticmethod
    def _unwritten_register(register: tuple[str, int], name: str, origin: int, use: str) -> str:
        number = origin >> 3
        is_scalar = number >= FIRST_SCALAR
        source = Register("s", number - FIRST_SCALAR) if is_scalar else Register("v", number)
        if source == register:
            return f"{name} {use}, and nothing has written it in this wave"
        other = register_name(source.file, source.number)
        return f"{name} {use}; it depends on {other}, which nothing has written in this wave"
