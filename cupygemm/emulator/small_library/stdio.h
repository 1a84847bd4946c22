// The C header. <hip/hip_runtime.h> has already declared the functions that device code may use.
#pragma once

#include <device/memory.h>
#include <device/printf.h>
