// A part of HIP, all of which comes with its runtime header.
#pragma once

#include <hip/hip_runtime.h>
