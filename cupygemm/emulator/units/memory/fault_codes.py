"""The kinds of faults that C finds, and the checks that they belong to."""

from __future__ import annotations

from enum import IntEnum

from cupygemm.emulator.diagnostics.checking import Policy


class FaultCode(IntEnum):
    """``enum fault_code`` of native/machine.h."""

    OK = 0
    OUT_OF_BOUNDS = 1
    LDS_OUT_OF_BOUNDS = 2
    LDS_UNINITIALISED = 3
    RACE_READ = 4
    RACE_WRITE_READ = 5
    RACE_WRITE_WRITE = 6
    GLOBAL_RACE_READ = 7
    GLOBAL_RACE_WRITE_READ = 8
    GLOBAL_RACE_WRITE_WRITE = 9
    LDS_LOAD_IN_FLIGHT = 10
    SCRATCH_OUT_OF_BOUNDS = 11
    SCRATCH_MISALIGNED = 12
    ATOMIC_MISALIGNED = 13
    SCALAR_MISALIGNED = 14
    TRANSPOSE_MISALIGNED = 15
    TRANSPOSE_PARTIAL = 16
    LDS_LOAD_MISALIGNED = 17
    MISALIGNED = 18
    MEMORY_UNINITIALISED = 19
    UNDEFINED_STORE = 20
    UNDEFINED_ATOMIC = 21
    STREAM_RACE_READ = 22
    STREAM_RACE_WRITE_READ = 23
    STREAM_RACE_WRITE_WRITE = 24
    LANE_RACE = 25
    SKIPPED_BARRIER = 26
    INACTIVE_LANE = 27
    OTHER_VARIABLE = 28
    UNSEEN_WRITE = 29
    TYPED_FORMAT = 30
    TYPED_SELECTS = 31
    TYPED_SWIZZLED = 32
    TYPED_MISALIGNED = 33
    STALE_LINE = 34
    LANE_ADDRESS = 35
    NEEDS_FINER_SHADOW = 36


_CODES = {  # by the check that the faults belong to
    "bounds": (
        FaultCode.OUT_OF_BOUNDS,
        FaultCode.LDS_OUT_OF_BOUNDS,
        FaultCode.SCRATCH_OUT_OF_BOUNDS,
    ),
    "required_alignment": (
        FaultCode.SCRATCH_MISALIGNED,
        FaultCode.ATOMIC_MISALIGNED,
        FaultCode.SCALAR_MISALIGNED,
        FaultCode.TRANSPOSE_MISALIGNED,
        FaultCode.TRANSPOSE_PARTIAL,
        FaultCode.LDS_LOAD_MISALIGNED,
        FaultCode.TYPED_MISALIGNED,
    ),
    "alignment": (FaultCode.MISALIGNED,),
    "uninitialised": (
        FaultCode.LDS_UNINITIALISED,
        FaultCode.MEMORY_UNINITIALISED,
        FaultCode.UNDEFINED_STORE,
        FaultCode.UNDEFINED_ATOMIC,
    ),
    "waits": (FaultCode.LDS_LOAD_IN_FLIGHT,),
    "lds_races": (FaultCode.RACE_READ, FaultCode.RACE_WRITE_READ, FaultCode.RACE_WRITE_WRITE),
    "global_races": (
        FaultCode.GLOBAL_RACE_READ,
        FaultCode.GLOBAL_RACE_WRITE_READ,
        FaultCode.GLOBAL_RACE_WRITE_WRITE,
    ),
    "write_backs": (FaultCode.UNSEEN_WRITE,),
    "invalidations": (FaultCode.STALE_LINE,),
    "lane_addresses": (FaultCode.LANE_ADDRESS,),
    "lane_races": (FaultCode.LANE_RACE,),
    "inactive_lanes": (FaultCode.INACTIVE_LANE,),
    "partial_barriers": (FaultCode.SKIPPED_BARRIER,),
    "shared_arrays": (FaultCode.OTHER_VARIABLE,),
    "stream_races": (
        FaultCode.STREAM_RACE_READ,
        FaultCode.STREAM_RACE_WRITE_READ,
        FaultCode.STREAM_RACE_WRITE_WRITE,
    ),
}
CHECK_OF = {code: check for check, codes in _CODES.items() for code in codes}


def dropped_codes(policy: Policy) -> int:
    """Return the bits of the fault codes whose checks are off."""
    return sum(1 << code for code, check in CHECK_OF.items() if policy[check] == "off")
