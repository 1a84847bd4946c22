// Pairs of adjacent elements of a row of C, as mma.sync's sums have them.
//
// Where rows begin at multiples of a pair, one instruction loads or stores it. A warp's pairs lie
// in eight rows, so it takes the caches eight cycles, as for single elements.
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

template <class S> struct alignas(2 * sizeof(S)) ElementPair {
    S first, second;
};

// Load a pair. What lies at or behind column `end`, counted from the pair's first one, is zero.
template <bool aligned, class S>
CUPYGEMM_INLINE void load_pair(const S *from, i32 end, S &first, S &second) {
    ElementPair<S> pair{0, 0};
    if (aligned && end > 1) {
        pair = *reinterpret_cast<const ElementPair<S> *>(from);
    } else {
        if (end > 0)
            pair.first = from[0];
        if (end > 1)
            pair.second = from[1];
    }
    first = pair.first;
    second = pair.second;
}

template <bool aligned, class S>
CUPYGEMM_INLINE void store_pair(S *to, i32 end, S first, S second) {
    if (aligned && end > 1) {
        *reinterpret_cast<ElementPair<S> *>(to) = {first, second};
    } else {
        if (end > 0)
            to[0] = first;
        if (end > 1)
            to[1] = second;
    }
}

} // namespace cupygemm
