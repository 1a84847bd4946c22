// Control over what the compiler keeps in registers across a mainloop.
//
// Mainloops need nearly all registers. These functions limit how far the compiler may move
// computations and loads.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Return the same value, opaque to the compiler from this point on. Computations that depend on the
// result stay after this point, instead of moving ahead of a mainloop and occupying registers
// throughout.
CUPYGEMM_INLINE u32 settled_here(u32 value) {
    asm volatile("" : "+v"(value));
    return value;
}

// Return the kernel's parameter, read again at this point. Values kept from an earlier read would
// occupy registers that a mainloop needs.
template <class Args> CUPYGEMM_INLINE const Args &reread_arguments() {
    using Pointer = const __attribute__((address_space(4))) Args *;
    u64 address = (u64)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(address));
    return *(const Args *)(Pointer)address;
}

} // namespace cupygemm
