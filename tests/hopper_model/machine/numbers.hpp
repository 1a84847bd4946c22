// Number formats: conversions between bits and float.
#pragma once

#include "machine.hpp"

namespace hopper_model {

using Decoder = float (*)(u32 bits);

Decoder decoder_of(const char *ptx_type); // of a type such as "bf16"; an error for others
u32 decoded_bytes(const char *ptx_type);

} // namespace hopper_model
