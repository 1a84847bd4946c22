// An alias of <hip/hip_fp6.h>.
#pragma once

#include <hip/hip_fp6.h>
