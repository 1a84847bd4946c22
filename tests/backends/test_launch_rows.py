"""Launches that are prepared before the addresses of their operands are known."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace

import pytest

from cupygemm._backends.kernel_kind import Call, KernelKind, Launch
from cupygemm._backends.launch_rows import LaunchRows, region
from cupygemm._backends.struct_kernel import StructKernel

WIDE = KernelKind("wide", "=QqQQii", "{}.hpp")
NARROW = KernelKind("narrow", "=QqQ", "{}.hpp")


class Recorder:
    """In the place of a kernel: notes what it is launched with."""

    def __init__(self, num_bytes):
        self.seen, self._num_bytes = [], num_bytes

    def shape(self, grid, threads):
        return *grid, threads

    def launch(self, shape, stream, parameters):
        (place,) = (ctypes.c_void_p * 1).from_address(parameters)
        self.seen.append((shape, stream, ctypes.string_at(place, self._num_bytes)))


def test_addresses_are_put_in_and_nothing_else_changes():
    wide, narrow = Recorder(40), Recorder(24)
    negative, large = -(1 << 40), 1 << 30
    calls = [
        Call(
            Launch(wide, WIDE, 64),
            (3, 2),
            (region(1) + 24, negative, 0, region(2) + 8, large, -1),
        ),
        Call(Launch(narrow, NARROW, 32), (5, 1), (region(2), 7, region(1))),
    ]
    rows = LaunchRows(calls)
    for starts in ((1 << 46, 4096), (512, (1 << 47) + 16)):
        wide.seen, narrow.seen = [], []
        first, second = starts
        placed = rows.at(*starts)
        placed.enqueue(1, 77)
        placed.enqueue(0, 78)
        packed = struct.pack("=QqQQii", first + 24, negative, 0, second + 8, large, -1)
        assert wide.seen == [((3, 2, 64), 78, packed)]
        assert narrow.seen == [((5, 1, 32), 77, struct.pack("=QqQ", second, 7, first))]


def kernel_that_fails(cp, *errors):
    """Return a kernel whose first launches raise errors with these numbers, and its launches."""
    made = StructKernel(SimpleNamespace(kernel=SimpleNamespace(ptr=1)))
    left, done = list(errors), []

    def launch(*arguments):
        if left:
            error = RuntimeError("launch")
            error.status = left.pop(0)
            raise error
        done.append(arguments)

    made._driver_launch = launch
    return made, done


def test_a_launch_is_tried_again_in_a_thread_without_a_context(cp):
    kernel, done = kernel_that_fails(cp, 201)
    kernel.launch(kernel.shape((2, 3), 32), 5, 6)
    assert done == [(1, 2, 3, 1, 32, 1, 1, 0, 5, 6, 0)]


@pytest.mark.parametrize("errors", [(201, 201), (700,)])
def test_other_failures_of_a_launch_are_raised(cp, errors):
    kernel, done = kernel_that_fails(cp, *errors)
    with pytest.raises(RuntimeError):
        kernel((2, 3), 32, b"12345678")
    assert not done
