// Four adjacent sums in fp32 or fp64, passed through an epilogue to C.
//
// `config.cuh` defines the type of the sums (`Config::Accumulator`), and whether C takes stores of
// four elements of at most 16 bytes (`Config::c_vectors`).
#pragma once

#include "hopper/sources.cuh"

namespace cupygemm {

using PartSum = Config::Accumulator;

struct Four {
    PartSum value[4];
};

CUPYGEMM_INLINE void load_sums(float (&x)[4], const float *address) {
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "l"(address));
}

CUPYGEMM_INLINE void load_sums(double (&x)[4], const double *address) {
    asm volatile("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(x[0]), "=d"(x[1]) : "l"(address));
    asm volatile("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(x[2]), "=d"(x[3]) : "l"(address + 2));
}

CUPYGEMM_INLINE Four load_four(const PartSum *address) {
    Four four;
    load_sums(four.value, address);
    return four;
}

// Apply the epilogue to four sums and store the first `count`. Columns beyond n exist only in the
// pitch.
template <class Epilogue> CUPYGEMM_INLINE void store_four(typename Epilogue::Bits *to, Four sum,
                                                          u32 row, u32 column, u32 count,
                                                          const Epilogue &epilogue) {
    typename Epilogue::Row of_row;
    typename Epilogue::template Columns<4> of_columns;
    typename Epilogue::template Elements<4> of_elements;
    epilogue.load(of_row, row, 0, 1);
    epilogue.load(of_columns, 0, column, static_cast<i32>(count));
    epilogue.load(of_elements, row, column, static_cast<i32>(count));
    constexpr u32 bytes = 4 * sizeof(typename Epilogue::Bits);
    struct alignas(bytes < 16 ? bytes : 16) Pack {
        typename Epilogue::Bits bits[4];
    } pack;
    for (int i = 0; i < 4; ++i)
        pack.bits[i] = epilogue.finish(sum.value[i], i, of_row, of_columns, of_elements);
    if (Config::c_vectors && count >= 4) {
        *reinterpret_cast<Pack *>(to) = pack;
    } else {
        for (u32 i = 0; i < 4; ++i)
            if (i < count)
                to[i] = pack.bits[i];
    }
}

} // namespace cupygemm
