// An alias of <device/vector_types.h>.
#pragma once

#include <device/vector_types.h>
