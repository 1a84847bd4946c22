"""The state after calls that a signal handler interrupts, at every point where it can.

CPython runs signal handlers at the start of a Python function, after a call, and where a loop jumps
back. In these tests, a trace function raises there instead of a handler.
"""

from __future__ import annotations

import dis
import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest

import cupygemm.emulator
from cupygemm.emulator.memory.allocations import Memory
from cupygemm.emulator.undisturbed import undisturbed

PACKAGE = str(Path(cupygemm.emulator.__file__).parent)


class Interruption(BaseException):
    """What the handler raises."""


@functools.cache
def points(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which a handler may run."""
    found = itertools.pairwise(dis.get_instructions(code))
    after = ("CALL", "RESUME", "JUMP_BACKWARD")
    return frozenset(second.offset for first, second in found if first.opname.startswith(after))


def let_python_raise() -> None:
    """At the start of a function, Python raises exceptions that C kept until its call returned."""


def interrupted(action: Callable[[], None], where: int) -> bool:
    """Run an action, and interrupt the emulator at a point; return whether that point exists."""
    left = itertools.count(where, -1)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in points(frame.f_code) and next(left) == 0:
            raise Interruption
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
        let_python_raise()
    except Interruption:
        return True
    finally:
        sys.settrace(before)
    return next(left) < 0


def everywhere(action: Callable[[], None]) -> Iterator[int]:
    """Interrupt an action at its first point, its second, and so on; yield after each."""
    for where in itertools.count():
        if not interrupted(action, where):
            assert where > 20, "nothing is traced"
            return
        yield where


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory(1 << 30)
    yield memory
    memory.close()


def test_an_interrupted_allocation_takes_no_memory(memory: Memory) -> None:
    kept = memory.malloc(100)
    for _ in everywhere(lambda: memory.free(memory.malloc(5000))):
        for start in memory.ranges()[0].tolist():
            if start != kept:  # interrupted in `free`, which is to be repeated
                memory.free(start)
        assert memory.used_bytes == 100
        assert memory.contains(kept, 100)


def test_arrays_in_memory_of_interrupted_ones_have_their_own_bounds(memory: Memory) -> None:
    """The pool splits its blocks at other places each time: no earlier array may remain."""
    block = memory.malloc(4096)
    memory.carve(block, 1)

    def carve() -> None:
        arrays = [memory.carve(block + offset, 200) for offset in (0, 512, 1024)]
        del arrays[1]
        memory.carve(block + 512, 300)

    for _ in everywhere(carve):
        array = memory.carve(block, 2000)
        assert memory.contains(block, 2000)
        assert memory.ranges()[0].tolist() == [block]
        del array


def test_arrays_after_interrupted_ones_of_cupy_have_their_own_bounds(cp: ModuleType) -> None:
    pool = cp.get_default_memory_pool()
    devices = cupygemm.emulator._session._devices
    if devices is None:
        pytest.skip("a GPU runs the tests")

    pool.free_all_blocks()
    cp.empty(1900, "u1")  # the pool cuts all that follow from its block

    def work() -> None:
        first, second = cp.empty(300, "u1"), cp.empty(300, "u1")
        del second
        del first

    for where in everywhere(work):
        array = cp.empty(900, "u1")
        start = array.data.ptr
        assert devices.memory.contains(start, 900), where
        assert not devices.memory.contains(start, 901), where
        del array


def test_interrupted_allocations_of_cupy_lose_no_memory(cp: ModuleType) -> None:
    """C repeats the interrupted call, which finds the allocation of its first attempt."""
    devices = cupygemm.emulator._session._devices
    if devices is None:
        pytest.skip("a GPU runs the tests")
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    used = devices.memory.used_bytes
    for where in everywhere(lambda: cp.empty(300, "u1")):
        pool.free_all_blocks()
        assert devices.memory.used_bytes == used, where


def test_an_interrupted_begin_or_end_of_a_capture_is_done_once(cp: ModuleType) -> None:
    """C repeats the call, which then must not find that its first attempt has done the work."""
    for where in itertools.count():
        stream = cp.cuda.Stream(non_blocking=True)
        began = interrupted(stream.begin_capture, where)
        assert stream.is_capturing(), where
        ended = interrupted(stream.end_capture, where)
        assert not stream.is_capturing(), where
        if not began and not ended:
            break
    assert where > 20, "nothing is traced"


def test_interrupted_functions_of_a_module_can_be_launched(cp: ModuleType) -> None:
    module = cp.RawModule(code='extern "C" __global__ void k(int* x) { *x = 7; }')
    x = cp.zeros(1, "i4")
    for _ in everywhere(lambda: module.get_function("k")):
        module.get_function("k")((1,), (1,), (x,))
        assert x.get() == 7
        x[0] = 0


def test_a_program_that_runs_within_the_import_is_not_left_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For example, a program whose file has the name of a module that the package imports."""
    assert undisturbed(threading.current_thread) is not threading.main_thread()
    monkeypatch.setattr(sys.modules["cupygemm"].__spec__, "_initializing", True, raising=False)
    assert undisturbed(threading.current_thread) is threading.main_thread()
