// Words in global memory in which thread blocks count their progress for each other.
// Source: PTX ISA 9.0, "ld", "st", "atom", "Memory Consistency Model".
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Store a word with release order: a thread that acquires it sees all earlier writes of this
// thread, and of the threads with which it passed a barrier before.
CUPYGEMM_INLINE void store_release(u64 address, u64 word) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
}
CUPYGEMM_INLINE u64 load_acquire(u64 address) {
    u64 word;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(address) : "memory");
    return word;
}

// Add one to a word, and return its previous value.
CUPYGEMM_INLINE u64 count_up(u64 address) {
    u64 word;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(word)
                 : "l"(address), "l"(u64{1})
                 : "memory");
    return word;
}

} // namespace cupygemm
