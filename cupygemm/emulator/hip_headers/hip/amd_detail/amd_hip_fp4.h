// An alias of <hip/hip_fp4.h>.
#pragma once

#include <hip/hip_fp4.h>
