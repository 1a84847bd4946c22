"""hipDeviceProp_t and hipDeviceAttribute_t of an emulated target.

The layout and the numbering are those of AMD's HIP API reference (ROCm 7.0, hip_runtime_api.h). The
values are the target's, from `targets`, or else those that ROCm reports for an Instinct part. CDNA
has no texture hardware, so all texture and surface limits are 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from cupygemm.emulator.device import MAX_GRID, MAX_THREADS_PER_BLOCK
from cupygemm.emulator.targets import Target

HIP_VERSION = 70051831  # as ROCm 7.0.0's runtime reports
WARP_SIZE = 64
_INT_MAX = 2**31 - 1

# Bits of hipDeviceArch_t: atomics, doubles, vote, ballot, shuffle, system fence, 3-D grids; not
# funnel shift (11), __syncthreads_count and its like (13), surfaces (14), dynamic parallelism (16).
_ARCH_FEATURES = sum(1 << bit for bit in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15))

# Members in order: a name is an int; with a count, an array of ints; with a type, that type.
_MEMBERS = """
name:c256 uuid:c16 luid:c8 luidDeviceNodeMask totalGlobalMem:z sharedMemPerBlock:z regsPerBlock
warpSize memPitch:z maxThreadsPerBlock maxThreadsDim:3 maxGridSize:3 clockRate totalConstMem:z
major minor textureAlignment:z texturePitchAlignment:z deviceOverlap multiProcessorCount
kernelExecTimeoutEnabled integrated canMapHostMemory computeMode maxTexture1D maxTexture1DMipmap
maxTexture1DLinear maxTexture2D:2 maxTexture2DMipmap:2 maxTexture2DLinear:3 maxTexture2DGather:2
maxTexture3D:3 maxTexture3DAlt:3 maxTextureCubemap maxTexture1DLayered:2 maxTexture2DLayered:3
maxTextureCubemapLayered:2 maxSurface1D maxSurface2D:2 maxSurface3D:3 maxSurface1DLayered:2
maxSurface2DLayered:3 maxSurfaceCubemap maxSurfaceCubemapLayered:2 surfaceAlignment:z
concurrentKernels ECCEnabled pciBusID pciDeviceID pciDomainID tccDriver asyncEngineCount
unifiedAddressing memoryClockRate memoryBusWidth l2CacheSize persistingL2CacheMaxSize
maxThreadsPerMultiProcessor streamPrioritiesSupported globalL1CacheSupported localL1CacheSupported
sharedMemPerMultiprocessor:z regsPerMultiprocessor managedMemory isMultiGpuBoard
multiGpuBoardGroupID hostNativeAtomicSupported singleToDoublePrecisionPerfRatio
pageableMemoryAccess concurrentManagedAccess computePreemptionSupported
canUseHostPointerForRegisteredMem cooperativeLaunch cooperativeMultiDeviceLaunch
sharedMemPerBlockOptin:z pageableMemoryAccessUsesHostPageTables directManagedMemAccessFromHost
maxBlocksPerMultiProcessor accessPolicyMaxWindowSize reservedSharedMemPerBlock:z
hostRegisterSupported sparseHipArraySupported hostRegisterReadOnlySupported
timelineSemaphoreInteropSupported memoryPoolsSupported gpuDirectRDMASupported
gpuDirectRDMAFlushWritesOptions gpuDirectRDMAWritesOrdering memoryPoolSupportedHandleTypes
deferredMappingHipArraySupported ipcEventSupported clusterLaunch unifiedFunctionPointers
reserved:63 hipReserved:32 gcnArchName:c256 maxSharedMemoryPerMultiProcessor:z
clockInstructionRate arch hdpMemFlushCntl:z hdpRegFlushCntl:z cooperativeMultiDeviceUnmatchedFunc
cooperativeMultiDeviceUnmatchedGridDim cooperativeMultiDeviceUnmatchedBlockDim
cooperativeMultiDeviceUnmatchedSharedMem isLargeBar asicRevision
"""

# hipDeviceAttribute_t from 0 up, by the member that holds the value; "-" is always 0.
_ATTRIBUTES = """
ECCEnabled accessPolicyMaxWindowSize asyncEngineCount canMapHostMemory
canUseHostPointerForRegisteredMem clockRate computeMode computePreemptionSupported
concurrentKernels concurrentManagedAccess cooperativeLaunch cooperativeMultiDeviceLaunch
deviceOverlap directManagedMemAccessFromHost globalL1CacheSupported hostNativeAtomicSupported
integrated isMultiGpuBoard kernelExecTimeoutEnabled l2CacheSize localL1CacheSupported -
luidDeviceNodeMask major managedMemory maxBlocksPerMultiProcessor maxThreadsDim:0 maxThreadsDim:1
maxThreadsDim:2 maxGridSize:0 maxGridSize:1 maxGridSize:2 - - - - - - - - - - - - - - - - - - - -
- - - maxThreadsDim:0 maxThreadsPerBlock maxThreadsPerMultiProcessor memPitch memoryBusWidth
memoryClockRate minor multiGpuBoardGroupID multiProcessorCount - pageableMemoryAccess
pageableMemoryAccessUsesHostPageTables pciBusID pciDeviceID pciDomainID persistingL2CacheMaxSize
regsPerBlock regsPerMultiprocessor reservedSharedMemPerBlock sharedMemPerBlock
sharedMemPerBlockOptin sharedMemPerMultiprocessor - streamPrioritiesSupported - tccDriver
textureAlignment texturePitchAlignment totalConstMem totalGlobalMem unifiedAddressing - warpSize -
- - -
"""
_AMD_ATTRIBUTES = """
clockInstructionRate - maxSharedMemoryPerMultiProcessor - - hdpMemFlushCntl hdpRegFlushCntl
cooperativeMultiDeviceUnmatchedFunc cooperativeMultiDeviceUnmatchedGridDim
cooperativeMultiDeviceUnmatchedBlockDim cooperativeMultiDeviceUnmatchedSharedMem isLargeBar
asicRevision - - multiProcessorCount - clockInstructionRate
"""
_AMD_SPECIFIC_BEGIN = 10000


def _members() -> Iterator[tuple[str, type]]:
    for member in _MEMBERS.split():
        name, _, kind = member.partition(":")
        if kind.startswith("c"):
            yield name, ctypes.c_char * int(kind[1:])
        elif kind == "z":
            yield name, ctypes.c_size_t
        elif kind:
            yield name, ctypes.c_int * int(kind)
        else:
            yield name, ctypes.c_int


class DeviceProperties(ctypes.Structure):
    """HIP's hipDeviceProp_tR0600."""

    _fields_ = tuple(_members())


def pci_address(device: int) -> str:
    """Return the PCI address of a device, by its index."""
    return f"0000:{device + 1:02x}:00.0"


def device_properties(target: Target, device: int = 0) -> DeviceProperties:
    """Return the structure that hipGetDeviceProperties fills for a device of a target."""
    major, minor = target.compute_capability
    threads = MAX_THREADS_PER_BLOCK
    return DeviceProperties(
        name=target.part.encode(),
        gcnArchName=f"{target.name}:sramecc+:xnack-".encode(),
        major=major,
        minor=minor,
        totalGlobalMem=target.memory_bytes,
        sharedMemPerBlock=target.lds_bytes,
        sharedMemPerBlockOptin=target.lds_bytes,
        sharedMemPerMultiprocessor=target.lds_bytes,
        maxSharedMemoryPerMultiProcessor=target.lds_bytes,
        regsPerBlock=65536,
        regsPerMultiprocessor=4 * 512 * WARP_SIZE,
        warpSize=WARP_SIZE,
        memPitch=_INT_MAX,
        maxThreadsPerBlock=threads,
        maxThreadsDim=(ctypes.c_int * 3)(threads, threads, threads),
        maxGridSize=(ctypes.c_int * 3)(*MAX_GRID),
        maxThreadsPerMultiProcessor=2048,
        maxBlocksPerMultiProcessor=32,
        clockRate=target.clock_mhz * 1000,
        clockInstructionRate=100_000,
        totalConstMem=_INT_MAX,
        textureAlignment=256,
        texturePitchAlignment=256,
        multiProcessorCount=target.num_cus,
        canMapHostMemory=1,
        concurrentKernels=1,
        cooperativeLaunch=1,
        ECCEnabled=1,
        pciBusID=device + 1,
        asyncEngineCount=1,
        deviceOverlap=1,
        globalL1CacheSupported=1,
        localL1CacheSupported=1,
        persistingL2CacheMaxSize=target.l2_bytes,
        unifiedAddressing=1,
        memoryClockRate=target.memory_clock_mhz * 1000,
        memoryBusWidth=target.memory_bus_bits,
        l2CacheSize=target.l2_bytes,
        streamPrioritiesSupported=1,
        managedMemory=1,
        isLargeBar=1,
        arch=_ARCH_FEATURES,
    )


def device_attribute(properties: DeviceProperties, attribute: int) -> int | None:
    """Return the value of a hipDeviceAttribute_t, or None if there is no such attribute."""
    names, position = _ATTRIBUTES.split(), attribute
    if attribute >= _AMD_SPECIFIC_BEGIN:
        names, position = _AMD_ATTRIBUTES.split(), attribute - _AMD_SPECIFIC_BEGIN
    if not 0 <= position < len(names):
        return None
    name, _, index = names[position].partition(":")
    if name == "-":
        return 0
    value = getattr(properties, name)
    return min(int(value[int(index)] if index else value), _INT_MAX)
