// The additions of HIP's device language to C++, for the emulated device. They are based on AMD's
// HIP documentation ("HIP C++ language extensions", "HIP math API") and clang's builtins, without
// ROCm's device libraries. hiprtc includes this header before every program.
#pragma once

#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__ 1
#endif

#include <assert.h> // hiprtc and hip_runtime.h include it
#include <hip/hip_version.h>

#include <device/keywords.h>

#include <device/vector_types.h>

#include <device/launch.h>

#include <device/integer.h>
#include <device/math.h>
#include <device/ocml.h>

#include <device/atomic.h>
#include <device/heap.h>
#include <device/memory.h>
#include <device/printf.h>
#include <device/warp.h>
#include <device/warp_sync.h>

#include <hip/hip_fp16.h>

#include <device/cxx_library.h>
