"""Several emulated devices in one process: memory, peers, streams, modules, products on each."""

import pytest

import cupygemm.emulator
from cupygemm.emulator import _session
from cupygemm.emulator.peers import Devices
from cupygemm.emulator.targets import TARGETS

SETUP = """
import cupygemm
import cupy as cp
import numpy as np
kernel = cp.RawKernel('extern "C" __global__ void add(float *x) { x[threadIdx.x] += 1; }', "add")
runtime = cp.cuda.runtime
"""
CODE = (
    SETUP
    + """
from cupygemm.emulator import last_fault
assert runtime.getDeviceCount() == 3

# Arrays live on the device that was current, and each device multiplies.
for index in range(3):
    with cp.cuda.Device(index):
        a = cp.asarray(np.arange(70 * 40).reshape(70, 40) % 7, "float16")
        c = cupygemm.matmul(a, a.T)
        assert a.device.id == c.device.id == index
    host = np.arange(70 * 40).reshape(70, 40) % 7
    assert (c.get() == host @ host.T).all()
    with cp.cuda.Device(index):
        assert (cp.matmul(a, a.T).get() == host @ host.T).all()  # by the stand-in for hipBLAS
assert cupygemm.matmul(a, a.T).device.id == 2  # whichever device is current

# Memory is counted by device; attributes say where a pointer belongs.
with cp.cuda.Device(1):
    x = cp.zeros(5, "float32")
    runtime.deviceSynchronize()
    assert runtime.pointerGetAttributes(x.data.ptr).device == 1
assert cp.cuda.Device(2).pci_bus_id == "0000:03:00.0"
assert cp.cuda.Device.from_pci_bus_id("0000:02:00.0").id == 1

# A kernel needs peer access, and the report names both devices.
try:
    with cp.cuda.Device(2):
        kernel((1,), (5,), (x,))
        runtime.deviceSynchronize()
except cp.cuda.driver.CUDADriverError as err:
    text = str(err)
assert "global read without peer access" in text, text
assert "of device 1" in text, text
assert "device 2 has no access to the memory of device 1: call hipDeviceEnablePeerAccess(1)" in text
assert last_fault().kind == "global read without peer access"
with cp.cuda.Device(2):
    assert runtime.deviceCanAccessPeer(2, 1) == 1
    runtime.deviceEnablePeerAccess(1)
    kernel((1,), (5,), (x,))
    runtime.deviceSynchronize()
    try:
        runtime.deviceEnablePeerAccess(1)
    except runtime.CUDARuntimeError as err:
        assert "PeerAccessAlreadyEnabled" in str(err), err
    runtime.deviceDisablePeerAccess(1)
    try:
        runtime.deviceDisablePeerAccess(1)
    except runtime.CUDARuntimeError as err:
        assert "PeerAccessNotEnabled" in str(err), err
assert (x.get() == 1).all()

# Copies need none, and memory of the host is everybody's.
with cp.cuda.Device(0):
    y = cp.empty(5, "float32")
    runtime.memcpyPeer(y.data.ptr, 0, x.data.ptr, 1, 20)
    assert (y.get() == 1).all()
pinned = cp.cuda.alloc_pinned_memory(20)
shared = np.frombuffer(pinned, "float32", 5)
shared[:] = 3
with cp.cuda.Device(1):
    kernel((1,), (5,), (np.uint64(pinned.ptr),))
assert (shared == 4).all()
print("passed")
"""
)


@pytest.mark.slow
def test_devices_have_memory_of_their_own(run_python, device):
    assert run_python(CODE, target=f"{device.target}:3").split()[-1] == "passed"


def test_a_stream_and_a_module_belong_to_a_device(run_python, device):
    code = (
        SETUP
        + """
x = cp.zeros(5, "float32")
with cp.cuda.Device(1):
    stream = cp.cuda.Stream()
module = cp.RawModule(code=kernel.code)
function = module.get_function("add").kernel.ptr  # of the current device, 0
errors = []
for place, queue in ((0, stream), (1, None)):
    try:
        with cp.cuda.Device(place):
            cp.cuda.driver.launchKernel(function, 1, 1, 1, 5, 1, 1, 0,
                                        0 if queue is None else queue.ptr, 0, 0)
    except cp.cuda.driver.CUDADriverError as err:
        errors.append(str(err))
print(*errors, sep=";")
"""
    )
    output = str(run_python(code, target=f"{device.target}:2"))
    assert "a launch on device 0 into a stream of device 1" in output
    assert "which was loaded on device 0: load the module on each device" in output


@pytest.mark.parametrize("target", ["gfx942:0", "gfx942:17", "gfx942:", "gfx942:two", "gfx1100:2"])
def test_a_wrong_number_of_devices_is_refused(target):
    with pytest.raises(ValueError, match=r"can be emulated, e\.g\. gfx942:4|cannot be emulated"):
        cupygemm.emulator.enable(target)


def test_another_number_needs_another_process(cp, device):
    if not device.emulated:
        pytest.skip("the process has a GPU")
    assert _session._devices is not None
    cupygemm.emulator.enable(device.target)
    with pytest.raises(cupygemm.emulator.EmulatorSetupError, match="needs another process"):
        cupygemm.emulator.enable(f"{device.target}:{len(_session._devices) + 1}")


def test_freed_and_carved_memory_keeps_its_device():
    devices = Devices(TARGETS["gfx942"], 2)
    memory, other = devices[1].memory, devices[0].memory
    block = memory.malloc(4096, "hipMalloc")
    array = memory.carve(block + 64, 100)
    assert other.is_peers(block + 64)
    assert not memory.is_peers(block + 64)
    assert [len(devices[index].memory.ranges()[0]) for index in (0, 1)] == [0, 1]
    assert (memory.used_bytes, other.used_bytes) == (4096, 0)
    memory.free(block)
    assert memory.used_bytes == 0
    assert len(memory.ranges()[0]) == 0
    del array
    devices.memory.close()
