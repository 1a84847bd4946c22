"""The stand-in runtime's handling of unchecked errors, and of interruptions."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from cupygemm.emulator.interruptions import raised_by_a_handler
from cupygemm.emulator.runtime.libraries import Dim3
from cupygemm.emulator.runtime.status import Status

# -- errors that a host library ignores --


def test_the_random_generators_of_cupy_work(cp: ModuleType) -> None:
    """CuPy asks for attribute 14, HIP's globalL1CacheSupported, as the number of processors."""
    drawn = cp.random.default_rng(0).standard_normal(5000).get()
    assert abs(drawn.mean()) < 0.1
    assert abs(drawn.std() - 1) < 0.1
    raw = cp.random.default_rng(0).integers(0, 1000, 100).get()
    assert len(set(raw.tolist())) > 80


def launch_by_a_host_library(hip: ctypes.CDLL, stub: int) -> int:
    one, nothing = Dim3(1, 1, 1), ctypes.c_void_p()
    hip.hipLaunchKernel.argtypes = (
        ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
    )  # fmt: skip
    status: int = hip.hipLaunchKernel(stub, one, one, nothing, 0, nothing)
    return status


@pytest.mark.parametrize("wait", ["hipDeviceSynchronize", "hipStreamSynchronize", "hipStreamQuery"])
def test_an_ignored_error_of_a_launch_surfaces_in_the_next_wait(
    hip: ctypes.CDLL, wait: str
) -> None:
    launch_by_a_host_library(hip, 0x1234)  # whose status is not checked
    assert hip.hipSetDevice(5) == Status.INVALID_DEVICE  # an error of its own, with a message
    assert getattr(hip, wait)(None) == Status.INVALID_DEVICE_FUNCTION
    text = hip.hipGetErrorString(Status.INVALID_DEVICE_FUNCTION).decode()
    assert text == (
        "hipLaunchKernel failed, and its caller ignored the error:\n"
        "no kernel is registered for the stub 0x1234"
    )
    assert getattr(hip, wait)(None) == 0, "it is reported once"


def test_an_ignored_error_of_a_launch_surfaces_in_the_next_copy(cp: ModuleType) -> None:
    array, hip = cp.ones(3), ctypes.CDLL("libamdhip64.so.7")
    launch_by_a_host_library(hip, 0x1234)
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="hipLaunchKernel failed"):
        array.get()
    assert array.get().tolist() == [1, 1, 1]


def test_an_error_whose_text_was_asked_for_does_not_surface_again(hip: ctypes.CDLL) -> None:
    hip.hipGetErrorString.restype = ctypes.c_char_p
    status = launch_by_a_host_library(hip, 0x1234)
    assert hip.hipGetErrorString(status) == b"no kernel is registered for the stub 0x1234"
    assert hip.hipDeviceSynchronize() == 0


# -- interruptions --

# A kernel that reports in x[1] that it runs, and then waits for x[0]; `when_it_runs` runs an action
# before it sets x[0]. The kernel counts, so that it is not reported as an endless loop.
WAITING = """
import ctypes, os, signal, sys, threading, time
import cupygemm, cupy
kernel = cupy.RawKernel(
    'extern "C" __global__ void k(volatile int* x) {'
    ' x[1] = 1; unsigned i = 0; while (x[0] == 0 && ++i); }', "k"
)
kernel.compile()
x = cupy.zeros(2, "i4")
def when_it_runs(number):
    running = ctypes.c_int.from_address(x.data.ptr + 4)
    running.value = 0
    def watch():
        while not running.value:
            time.sleep(0.001)
        os.kill(os.getpid(), number)
    threading.Thread(target=watch, daemon=True).start()
"""
INTERRUPTED = (
    WAITING
    + """
def handler(*_):
    raise eval(raised)
signal.signal(signal.SIGTERM, handler)
for raised in RAISED:
    x.fill(0)
    when_it_runs(signal.SIGTERM)
    try:
        kernel((1,), (1,), (x,))
        print("not interrupted")
    except BaseException as err:
        print(repr(err))
    x.fill(1)
    kernel((1,), (1,), (x,))
    print("done")
"""
)


RAISED = ["KeyboardInterrupt()", "SystemExit(3)", "GeneratorExit('no')", "TimeoutError('late')"]
HANDLERS = """
class Alarm(Exception): pass
def deep(): raise Alarm("too long")
def with_frame(number, frame): deep()
class Callable:
    def __call__(self, *arguments): deep()
    def method(self, number, frame): deep()
import functools
handlers = [with_frame, lambda *a: deep(), Callable(), Callable().method,
            functools.partial(lambda x, n, f: deep(), 1)]
"""


@pytest.mark.slow
def test_ordinary_exceptions_of_every_kind_of_handler_pass_unchanged(
    run_python: Callable[..., str],
) -> None:
    script = f"""{WAITING}{HANDLERS}
for handler in handlers:
    signal.signal(signal.SIGALRM, handler)
    when_it_runs(signal.SIGALRM)
    try:
        kernel((1,), (1,), (x,))
    except Alarm as err:
        print(repr(err))
x.fill(1)
kernel((1,), (1,), (x,))
print("done")
"""
    output = run_python(script, target="gfx942")
    assert output == "Alarm('too long')\n" * 5 + "done\n"


def test_exceptions_of_the_device_itself_are_not_a_handlers() -> None:
    def fails(frame_of_the_caller: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fails(None)
    assert raised_by_a_handler(caught.value) is None
    with pytest.raises(ZeroDivisionError) as caught:
        fails(sys._getframe())
    assert raised_by_a_handler(caught.value) is caught.value


@pytest.mark.slow
def test_what_a_signal_handler_raises_ends_a_launch(run_python: Callable[..., str]) -> None:
    output = run_python(f"RAISED = {RAISED}\n{INTERRUPTED}", target="gfx942")
    assert output == "".join(f"{raised}\ndone\n" for raised in RAISED)


@pytest.mark.slow
def test_ctrl_c_ends_a_launch(run_python: Callable[..., str]) -> None:
    script = f"""{WAITING}
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
try:
    when_it_runs(signal.SIGINT)
    kernel((1,), (1,), (x,))
except KeyboardInterrupt:
    print("interrupted")
x.fill(1)
kernel((1,), (1,), (x,))
print("done")
"""
    assert run_python(script, target="gfx942") == "interrupted\ndone\n"


LOADING = (
    WAITING
    + """
def handler(*_):
    raise TimeoutError("late")
signal.signal(signal.SIGTERM, handler)
def profile(frame, event, arg):
    if event == "call" and frame.f_code.co_name == FUNCTION:
        threading.setprofile(None)
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGTERM)
cupy.cuda.runtime.memset(x.data.ptr, 1, 4)  # the kernel is to end
threading.setprofile(profile)
sys.setprofile(profile)
try:
    kernel((1,), (1,), (x,))
    print("lost")
except TimeoutError as err:
    print(repr(err))
kernel((1,), (1,), (x,))
print("done")
"""
)


def test_an_error_of_a_handler_is_not_taken_for_a_missing_file(
    run_python: Callable[..., str],
) -> None:
    """The first launch imports modules, and importlib drops an OSError in `path_stats`."""
    script = LOADING.replace("FUNCTION", "'path_stats'")
    assert run_python(script, target="gfx942") == "TimeoutError('late')\ndone\n"


RANDOMLY = """
import random, signal
import cupygemm, cupy, numpy
class Stop(KIND): pass
def handler(*_):
    raise Stop
signal.signal(signal.SIGALRM, handler)
random = random.Random(0)
x = cupy.arange(64, dtype="f4")
def work():
    for _ in range(5):
        y = cupy.empty(random.randrange(1, 5000), "u1")
        y.fill(3)
        (x + x).get()
        cupy.cuda.Event().record()
        cupy.cuda.Stream().synchronize()
        cupy.get_default_memory_pool().free_all_blocks()
work()
stopped = 0
while stopped < 300:
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 1e-2))
        while True:  # so that the alarm comes within the block, however fast the work is
            work()
    except Stop:
        stopped += 1
assert ((x + x).get() == 2 * numpy.arange(64)).all()
print("sound")
"""


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["BaseException", "OSError", "Exception"])
def test_calls_that_are_interrupted_at_random_leave_no_errors_behind(
    run_python: Callable[..., str], kind: str
) -> None:
    script = RANDOMLY.replace("KIND", kind)
    assert run_python(script, target="gfx942", timeout=600) == "sound\n"


AT_THE_LIMIT = """
import cupygemm, cupy
from cupy.cuda import runtime
pointer = runtime.malloc(64)
seen = set()
def deeper():
    try:
        runtime.deviceSynchronize()
        runtime.memset(pointer, 0, 64)
    except runtime.CUDARuntimeError as err:
        seen.add(str(err))
    deeper()
try:
    deeper()
except RecursionError:
    pass
print(*sorted(text[:60] for text in seen), sep="\\n")
runtime.free(pointer)
"""


def test_a_call_at_the_recursion_limit_fails_and_says_so(run_python: Callable[..., str]) -> None:
    printed = run_python(AT_THE_LIMIT, target="gfx942").splitlines()
    assert printed
    assert {line.split(":")[0] for line in printed} == {"hipErrorUnknown"}
    assert any("maximum recursion depth exceeded" in line for line in printed)


def test_arrays_in_a_frame_are_no_handler(cp: ModuleType) -> None:
    """Comparisons of tuples of arrays with frames are by identity."""

    def fail(*arrays: Any) -> None:
        raise ValueError(f"{len(arrays)} arrays")

    with pytest.raises(ValueError, match="2 arrays") as caught:
        fail(cp.zeros(3), cp.zeros(3))
    assert raised_by_a_handler(caught.value) is None
