// The C header: what there is of it in device code is there already.
#pragma once

#include <device/memory.h>
