// mma.sync: a warp multiplies fragments in registers. It is Hopper's only fp64 matrix instruction,
// and takes 16-bit operands too small for wgmma's tiles.
//
// In fp64, lane 4 g + t holds two elements along k of rows g and g + 8 of A and of column g of B,
// and the sums at columns 2 t and 2 t + 1 of rows g and g + 8. To the instruction, element i has
// k = 4 i + t; any other k of the product may take its place, as long as A and B agree.
// Source: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k8".
#pragma once

#include "common/numeric.hpp"
#include "hopper/mbarrier.cuh"

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

// The same for tf32 numbers, which have the same layout, with sums in fp32. The elements of A are
// (g, t), (g + 8, t), (g, t + 4) and (g + 8, t + 4) of (row, k).
CUPYGEMM_INLINE void mma_m16n8k8(float *d, const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// d += a b, for the four sums from `d` on: rows g and g + 8, columns 2 t and 2 t + 1. A register of
// lane 4 g + t holds two elements along k, from 2 t on, of row g of an 8 x 8 matrix. The matrices
// of A are its quarters in the order (0, 0), (8, 0), (0, 8), (8, 8) of (row, k); those of B are its
// columns at k = 0 and 8. Source: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16".
template <class Element>
CUPYGEMM_INLINE void mma_m16n8k16(float *d, const u32 (&a)[4], const u32 *b) {
    if constexpr (IsSame<Element, bf16>::value)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Load four 8 x 8 matrices of 16-bit elements. Lane l supplies the address of row l % 8 of matrix
// l / 8; register i of lane l receives two elements of row l / 4 of matrix i, from column 2 (l % 4)
// on.
CUPYGEMM_INLINE void ldmatrix_x4(u32 (&r)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// Load them transposed: a lane's elements belong to column l / 4 instead of row l / 4.
CUPYGEMM_INLINE void ldmatrix_x4_trans(u32 (&r)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

// The thread's index in its block, read again: kept from the start of the kernel, it would take one
// more register.
CUPYGEMM_INLINE u32 thread_index() {
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

} // namespace cupygemm
