// Another name of <device/vector_types.h>.
#pragma once

#include <device/vector_types.h>
