// HIP's runtime header: the device language, and the declarations of the host's API.
#pragma once

#include <device/hip.h>
#include <hip/channel_descriptor.h>
#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>
#include <hip/texture_fetch_functions.h>
