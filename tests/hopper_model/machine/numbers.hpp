// Number formats: from bits to float and back.
#pragma once

#include "machine.hpp"

namespace hopper_model {

using Decoder = float (*)(u32 bits);

Decoder decoder_of(const char *ptx_type); // such as "bf16"; fails where there is none
u32 decoded_bytes(const char *ptx_type);

} // namespace hopper_model
