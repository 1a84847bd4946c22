"""The results of the stand-in HIP runtime: error codes and values in the caller's memory."""

from __future__ import annotations

import ctypes
import enum

from cupygemm._build.source_text import text_of


class Status(enum.IntEnum):
    """The values of hipError_t that the runtime returns; all are listed in errors.def."""

    SUCCESS = 0
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2
    INVALID_SYMBOL = 13
    INVALID_DEVICE_FUNCTION = 98
    INVALID_DEVICE = 101
    INVALID_IMAGE = 200
    INVALID_CONTEXT = 201
    NO_BINARY_FOR_GPU = 209
    PEER_ACCESS_UNSUPPORTED = 217
    FILE_NOT_FOUND = 301
    INVALID_HANDLE = 400
    ILLEGAL_STATE = 401
    NOT_FOUND = 500
    NOT_READY = 600
    LAUNCH_OUT_OF_RESOURCES = 701
    PEER_ACCESS_ALREADY_ENABLED = 704
    PEER_ACCESS_NOT_ENABLED = 705
    LAUNCH_FAILURE = 719
    COOPERATIVE_LAUNCH_TOO_LARGE = 720
    NOT_SUPPORTED = 801
    STREAM_CAPTURE_UNSUPPORTED = 900
    STREAM_CAPTURE_INVALIDATED = 901
    STREAM_CAPTURE_MERGE = 902
    STREAM_CAPTURE_UNMATCHED = 903
    STREAM_CAPTURE_UNJOINED = 904
    STREAM_CAPTURE_ISOLATION = 905
    STREAM_CAPTURE_IMPLICIT = 906
    GRAPH_EXEC_UPDATE_FAILURE = 910
    UNKNOWN = 999


class HipError(Exception):
    """An error that ends a HIP call with a code, and a message for hipGetErrorString."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def store_int(where: int, value: int) -> None:
    """Store an int result, unless the caller's pointer is null."""
    if where:
        ctypes.c_int.from_address(where).value = value


def store_size(where: int, value: int) -> None:
    """Store a size_t or pointer result, unless the caller's pointer is null."""
    if where:
        ctypes.c_size_t.from_address(where).value = value


def text_at(where: int) -> str:
    """Return the C string at an address.

    Raises
    ------
    HipError
        The address is null.
    """
    if not where:
        raise HipError(Status.INVALID_VALUE, "a string is a null pointer")
    return text_of(ctypes.string_at(where))
