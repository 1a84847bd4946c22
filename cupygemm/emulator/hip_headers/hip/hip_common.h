// A part of HIP; the runtime header includes everything.
#pragma once

#include <hip/hip_runtime.h>
