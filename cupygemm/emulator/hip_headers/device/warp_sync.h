// Functions across the lanes of a mask: votes, shuffles, comparisons and reductions.
// A mask has 64 bits, and names the lanes that call with it: HIP's own functions stop a kernel that
// passes any other mask, and the emulated device reports it (the check "sync_masks").
#pragma once

#include <device/keywords.h>
#include <device/launch.h>
#include <device/warp.h>

// Returns the mask. The emulated device reports a trap of this number as a finding, and continues.
template <typename MaskT>
HIP_DEVICE __attribute__((convergent)) unsigned long long hip_sync_mask(MaskT mask) {
    static_assert(sizeof(mask) == 8, "the mask must be a 64-bit integer, as a wave has 64 lanes");
    unsigned long long lanes = mask;
    unsigned long long alike = __builtin_constant_p(lanes) ? __activemask() : __match_any(lanes);
    if (alike != lanes)
        asm volatile("s_trap 32");
    return lanes;
}

template <typename MaskT>
HIP_DEVICE __attribute__((convergent)) unsigned long long __ballot_sync(MaskT mask, int predicate) {
    return __ballot(predicate) & hip_sync_mask(mask);
}
template <typename MaskT>
HIP_DEVICE __attribute__((convergent)) int __any_sync(MaskT mask, int predicate) {
    return (__ballot(predicate) & hip_sync_mask(mask)) != 0;
}
template <typename MaskT>
HIP_DEVICE __attribute__((convergent)) int __all_sync(MaskT mask, int predicate) {
    return (__ballot(predicate == 0) & hip_sync_mask(mask)) == 0;
}

// As in HIP, the type of the mask comes first among the template's parameters.
template <typename MaskT, typename T>
HIP_DEVICE __attribute__((convergent)) T __shfl_sync(MaskT mask, HIP_MAYBE_UNSET T value, int lane,
                                                     int width = warpSize) {
    hip_sync_mask(mask);
    return __shfl(value, lane, width);
}
template <typename MaskT, typename T>
HIP_DEVICE __attribute__((convergent)) T __shfl_up_sync(MaskT mask, HIP_MAYBE_UNSET T value,
                                                        unsigned int delta, int width = warpSize) {
    hip_sync_mask(mask);
    return __shfl_up(value, delta, width);
}
template <typename MaskT, typename T>
HIP_DEVICE __attribute__((convergent)) T __shfl_down_sync(MaskT mask, HIP_MAYBE_UNSET T value,
                                                          unsigned int delta,
                                                          int width = warpSize) {
    hip_sync_mask(mask);
    return __shfl_down(value, delta, width);
}
template <typename MaskT, typename T>
HIP_DEVICE __attribute__((convergent)) T __shfl_xor_sync(MaskT mask, HIP_MAYBE_UNSET T value,
                                                         int other, int width = warpSize) {
    hip_sync_mask(mask);
    return __shfl_xor(value, other, width);
}

template <typename MaskT, typename T>
HIP_DEVICE __attribute__((convergent)) unsigned long long __match_any_sync(MaskT mask, T value) {
    return __match_any(value) & hip_sync_mask(mask);
}
// Lanes with different masks are compared separately.
template <typename MaskT, typename T> HIP_DEVICE __attribute__((convergent)) unsigned long long
__match_all_sync(MaskT mask, T value, int *same) {
    unsigned long long equal = 0, lanes = hip_sync_mask(mask);
    bool found = false;
    while (__any(!found)) {
        if (!found && __hip_readfirstlane(lanes) == lanes) {
            equal = __match_all(value, same) & lanes;
            found = true;
        }
    }
    return equal;
}

// Combines the values of a mask's lanes, from the first to the last. All lanes stay in the loop:
// those with a smaller mask are read by others.
template <typename T, typename Operation>
HIP_DEVICE __attribute__((convergent)) T hip_reduce(unsigned long long mask, T value,
                                                    Operation operation) {
    unsigned long long left = mask & (mask - 1);
    T result = hip_value_of_lane(value, __builtin_ctzll(mask));
    while (__any(left != 0)) {
        T other = hip_value_of_lane(value, left != 0 ? __builtin_ctzll(left) : (int)__lane_id());
        if (left != 0)
            result = operation(result, other);
        left &= left - 1;
    }
    return result;
}
#define HIP_REDUCE(name, combined)                                                                 \
    template <typename MaskT, typename T>                                                          \
    HIP_DEVICE __attribute__((convergent)) T __reduce_##name##_sync(MaskT mask, T value) {         \
        return hip_reduce(hip_sync_mask(mask), value, [](T a, T b) -> T { return combined; });     \
    }
HIP_REDUCE(add, a + b)
HIP_REDUCE(min, b < a ? b : a)
HIP_REDUCE(max, a < b ? b : a)
HIP_REDUCE(and, (a & b))
HIP_REDUCE(or, a | b)
HIP_REDUCE(xor, a ^ b)
#undef HIP_REDUCE
