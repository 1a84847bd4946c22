// Four neighbouring sums, in fp32, on their way through an epilogue to C.
//
// `config.cuh` says whether C takes stores of four elements (`Config::c_vectors`).
#pragma once

#include "hopper/sources.cuh"

namespace cupygemm {

struct Four {
    float value[4];
};

CUPYGEMM_INLINE Four load_four(const float *address) {
    Four four;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.value[0]), "=f"(four.value[1]), "=f"(four.value[2]),
                   "=f"(four.value[3])
                 : "l"(address));
    return four;
}

// Store the first `count` of four sums after the epilogue. Columns past n belong to the pitch only.
template <class Epilogue> CUPYGEMM_INLINE void store_four(typename Epilogue::Bits *to, Four sum,
                                                          u32 row, u32 column, u32 count,
                                                          const Epilogue &epilogue) {
    typename Epilogue::Row of_row;
    typename Epilogue::template Columns<4> of_columns;
    typename Epilogue::template Elements<4> of_elements;
    epilogue.load(of_row, row, 0, 1);
    epilogue.load(of_columns, 0, column, static_cast<i32>(count));
    epilogue.load(of_elements, row, column, static_cast<i32>(count));
    struct alignas(4 * sizeof(typename Epilogue::Bits)) Pack {
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
