// An alias of <hip/hip_fp16.h>.
#pragma once

#include <hip/hip_fp16.h>
