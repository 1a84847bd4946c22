// An alias of <hip/hip_fp8.h>.
#pragma once

#include <hip/hip_fp8.h>
