// What the compiler may not keep in registers across a mainloop, which needs them.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// The same value, which the compiler must take as it is at this point: what is computed from it is
// computed after, and not before a mainloop, where it would occupy registers throughout.
CUPYGEMM_INLINE u32 settled_here(u32 value) {
    asm volatile("" : "+v"(value));
    return value;
}

// The kernel's parameter, read again from where this is written: kept in registers, it would occupy
// those that a mainloop needs.
template <class Args> CUPYGEMM_INLINE const Args &reread_arguments() {
    using Pointer = const __attribute__((address_space(4))) Args *;
    u64 address = (u64)__builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(address));
    return *(const Args *)(Pointer)address;
}

} // namespace cupygemm
