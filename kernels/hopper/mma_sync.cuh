// mma.sync: a warp multiplies fragments in registers. It is Hopper's only fp64 matrix instruction.
//
// Lane 4 g + t holds rows g and g + 8 of A and column g of B, two elements along k of each, and the
// sums at columns 2 t and 2 t + 1 of rows g and g + 8. To the instruction, element i has
// k = 4 i + t; any other k of the product may take its place, as long as A and B agree.
// Source: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k8".
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// A lane's elements of a row of A or of a column of B.
struct Fragment {
    double k[2];
};

// d += a b, for the four sums from `d` on. Products are not rounded before they are added.
CUPYGEMM_INLINE void mma_m16n8k8(double *d, const Fragment &a, const Fragment &a_below,
                                 const Fragment &b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a.k[0]), "d"(a_below.k[0]), "d"(a.k[1]), "d"(a_below.k[1]), "d"(b.k[0]),
                   "d"(b.k[1]));
}

// The thread's index in its block, read again: kept from the start of the kernel, it would take one
// more register.
CUPYGEMM_INLINE u32 thread_index() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

} // namespace cupygemm
