"""Two devices: every call runs on the device of its arrays, whichever is current, or is refused.

Before CuPy starts, a second device is added to the emulated runtime: a current device for each
thread, and modules, streams and allocations that record their device. A launch is refused if these
differ, as a GPU would refuse it or fault.
"""

import pytest

from tests.products.test_streams import CALLS

PROGRAM = """
import ctypes, threading
from cupygemm.emulator.runtime import handles, hip_memory, hip_module, hip_stream
from cupygemm.emulator.runtime.status import store_int

current = threading.local()
modules, functions, streams, memory = {}, {}, {}, {}

def here():
    return getattr(current, "device", 0)

def handle(pointer):
    return ctypes.c_size_t.from_address(pointer).value

def after(owner, name, note):
    original = getattr(owner, name)
    def call(self, *args):
        original(self, *args)
        note(*args)
    setattr(owner, name, call)

handles.Handles.check_device = lambda self, device: None
D = hip_stream.DeviceFunctions
D.hipGetDeviceCount = lambda self, count: store_int(count, 2)
D.hipGetDevice = lambda self, device: store_int(device, here())
D.hipSetDevice = lambda self, device: setattr(current, "device", device)
S, M, H = hip_stream.StreamFunctions, hip_module.ModuleFunctions, hip_memory.MemoryFunctions
after(S, "hipStreamCreateWithPriority", lambda stream, *_: streams.update({handle(stream): here()}))
after(M, "hipModuleLoad", lambda module, *_: modules.update({handle(module): here()}))
after(M, "hipModuleLoadData", lambda module, *_: modules.update({handle(module): here()}))
after(M, "hipModuleGetFunction",
      lambda function, module, _: functions.update({handle(function): modules[module]}))
launched = []
original = M.hipModuleLaunchKernel
def launch(self, function, *args):
    assert functions[function] == here(), ("a kernel of another device", functions[function])
    stream = args[7]
    assert streams.get(stream, here()) == here(), ("a stream of another device", stream)
    launched.append((here(), stream))
    original(self, function, *args)
M.hipModuleLaunchKernel = launch

import cupygemm.emulator
cupygemm.emulator.enable("gfx942")
import cupy as cp, cupygemm, numpy as np
from cupy.cuda import Device, Stream
"""

EVERY_FUNCTION = """

with Device(1):
    exec(ARRAYS)
for name, call in CALLS.items():
    for device in (0, 1):
        with Device(device):
            call()  # kernels are loaded
            launched.clear()
            result = call()
            results = result if isinstance(result, list) else [result]
            assert all(x.data.device_id == 1 for x in results), (name, device)
            assert {index for index, _ in launched} == {1}, (name, device, launched)
            assert cp.cuda.runtime.getDevice() == device, name
    with Device(1):
        stream = Stream(non_blocking=True)
    cp.cuda.runtime.deviceSynchronize()  # the stream does not wait for the default stream
    launched.clear()
    call(stream=stream)
    cp.cuda.runtime.deviceSynchronize()
    assert set(launched) == {(1, stream.ptr)}, (name, launched)
    assert cp.cuda.runtime.getDevice() == 0, name
print("checked", len(CALLS))
"""

REFUSALS = """
a, b, out = cp.ones((4, 4), "f4"), cp.ones((4, 4), "f4"), cp.full((4, 4), 9, "f4")
with Device(1):
    c, stream = cp.ones((4, 4), "f4"), Stream(non_blocking=True)
linalg = cupygemm.linalg
calls = [
    ("matmul", lambda: cupygemm.matmul(a, c)),
    ("matmul", lambda: cupygemm.matmul(c, c, out)),
    ("matmul", lambda: cupygemm.matmul(a, b, out, bias=c)),
    ("matmul", lambda: cupygemm.matmul(a, b, out, scale_a=c[:, 0])),
    ("gemm", lambda: cupygemm.gemm(1, a, b, 1, c, out=out)),
    ("syrk", lambda: cupygemm.syrk(1, a, 1, c, out=out)),
    ("dot", lambda: cupygemm.dot(a, c, out)),
    ("dot", lambda: cupygemm.dot(c, c, out)),
    ("inner", lambda: cupygemm.inner(a, c)),
    ("outer", lambda: cupygemm.outer(a[0], c[0])),
    ("outer", lambda: cupygemm.outer(c[0], c[0], out)),
    ("vdot", lambda: cupygemm.vdot(a, c)),
    ("vecdot", lambda: cupygemm.vecdot(c, c, out[0])),
    ("matvec", lambda: cupygemm.matvec(a, c[0], out[0])),
    ("vecmat", lambda: cupygemm.vecmat(c[0], a, out[0])),
    ("tensordot", lambda: cupygemm.tensordot(a, c)),
    ("einsum", lambda: cupygemm.einsum("ij,jk", c, c, out=out)),
    ("grouped_matmul", lambda: cupygemm.grouped_matmul([a, c], [b, c])),
    ("grouped_matmul", lambda: cupygemm.grouped_matmul([c], [c], [out])),
    ("multi_dot", lambda: linalg.multi_dot([a, c, a])),
    ("linear", lambda: cupygemm.linear(a, c, out=out)),
    ("scaled_matmul", lambda: cupygemm.scaled_matmul(a, b, c[:, 0], 1, out=out)),
]
for name, call in calls:
    try:
        call()
    except ValueError as error:
        text = str(error)
        assert text.startswith(f"{name}: the arrays must be on one device: "), (name, text)
        assert "on device 0" in text and "on device 1" in text, text
    else:
        raise AssertionError(name)
try:
    cupygemm.matmul(a, b, out, stream=stream)
except ValueError as error:
    assert "the stream is on device 1, the arrays are on device 0" in str(error), error
else:
    raise AssertionError("a stream of another device")
assert (cp.asnumpy(out) == 9).all()
print("refused", len(calls))
"""


@pytest.mark.slow  # every function, three times, in a process of its own
def test_calls_run_where_their_arrays_are(run_python):
    """Launches, streams and results, with the arrays' device current and with another."""
    assert "checked 25" in run_python(PROGRAM + f"ARRAYS = {CALLS!r}" + EVERY_FUNCTION)


@pytest.mark.slow
def test_arrays_on_two_devices_are_refused(run_python):
    assert "refused 22" in run_python(PROGRAM + REFUSALS)
