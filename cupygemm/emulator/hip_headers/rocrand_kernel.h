/* As with -I/opt/rocm/include/rocrand. */
#pragma once

#include <rocrand/rocrand_kernel.h>
