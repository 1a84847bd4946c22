// Functions across the 64 lanes of a wave: votes, shuffles, and the set of active lanes.
//
// A shuffle moves 32-bit pieces through ds_bpermute, so it accepts any type whose size is a
// multiple of four bytes; smaller integers are widened. <device/warp_sync.h> has the _sync forms.
#pragma once

#include <device/keywords.h>
#include <device/launch.h>

HIP_DEVICE unsigned int __lane_id() {
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}
HIP_DEVICE __attribute__((convergent)) unsigned long long __ballot(int predicate) {
    return __builtin_amdgcn_ballot_w64(predicate != 0);
}
HIP_DEVICE __attribute__((convergent)) unsigned long long __activemask() {
    return __builtin_amdgcn_ballot_w64(true);
}
HIP_DEVICE __attribute__((convergent)) int __any(int predicate) { return __ballot(predicate) != 0; }
HIP_DEVICE __attribute__((convergent)) int __all(int predicate) {
    return __ballot(predicate == 0) == 0;
}
// A wave runs in lockstep, so only the order of its memory accesses needs a fence.
HIP_DEVICE void __syncwarp(unsigned long long = ~0ull) {
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "wavefront");
}

HIP_DEVICE unsigned long long __lanemask_lt() { return (1ull << __lane_id()) - 1; }
HIP_DEVICE unsigned long long __lanemask_gt() { return ~__lanemask_lt() << 1; }

// Marks a parameter that some lanes may pass without having set it, as ROCm's headers do. For
// example, only the leader sets x before a shuffle that reads the leader's x. Without this mark,
// the compiler could assume that every lane has set x, and so that every lane is the leader.
#define HIP_MAYBE_UNSET __attribute__((maybe_undef))

// Returns the value of another lane, given the number of that lane within the wave.
template <typename T>
HIP_DEVICE __attribute__((convergent)) T hip_value_of_lane(HIP_MAYBE_UNSET T value, int lane) {
    if constexpr (sizeof(T) < 4) {
        int word = 0;
        __builtin_memcpy(&word, &value, sizeof(T));
        word = __builtin_amdgcn_ds_bpermute(lane * 4, word);
        __builtin_memcpy(&value, &word, sizeof(T));
    } else {
        static_assert(sizeof(T) % 4 == 0, "a shuffle moves whole 32-bit words");
        int words[sizeof(T) / 4];
        __builtin_memcpy(words, &value, sizeof(T));
        for (unsigned int i = 0; i < sizeof(T) / 4; i++) {
            words[i] = __builtin_amdgcn_ds_bpermute(lane * 4, words[i]);
        }
        __builtin_memcpy(&value, words, sizeof(T));
    }
    return value;
}

// `width` divides the wave into groups that shuffle independently. A source lane outside the group
// leaves the value unchanged.
template <typename T> HIP_DEVICE __attribute__((convergent)) T __shfl(HIP_MAYBE_UNSET T value,
                                                                      int lane,
                                                                      int width = warpSize) {
    int own = __lane_id();
    return hip_value_of_lane(value, (lane & (width - 1)) + (own & ~(width - 1)));
}
template <typename T> HIP_DEVICE __attribute__((convergent)) T __shfl_up(HIP_MAYBE_UNSET T value,
                                                                         unsigned int delta,
                                                                         int width = warpSize) {
    int own = __lane_id(), lane = own - (int)delta;
    return hip_value_of_lane(value, lane < (own & ~(width - 1)) ? own : lane);
}
template <typename T> HIP_DEVICE __attribute__((convergent)) T __shfl_down(HIP_MAYBE_UNSET T value,
                                                                           unsigned int delta,
                                                                           int width = warpSize) {
    int own = __lane_id(), lane = own + (int)delta;
    return hip_value_of_lane(value, (own & (width - 1)) + (int)delta >= width ? own : lane);
}
template <typename T> HIP_DEVICE __attribute__((convergent)) T __shfl_xor(HIP_MAYBE_UNSET T value,
                                                                          int mask,
                                                                          int width = warpSize) {
    int own = __lane_id(), lane = own ^ mask;
    return hip_value_of_lane(value, lane >= ((own + width) & ~(width - 1)) ? own : lane);
}

HIP_DEVICE unsigned long long __lanemask_eq() { return 1ull << __lane_id(); }
HIP_DEVICE __attribute__((convergent)) unsigned long long __ballot64(int predicate) {
    return __ballot(predicate);
}
HIP_DEVICE unsigned int __mbcnt_lo(unsigned int mask, unsigned int sum) {
    return __builtin_amdgcn_mbcnt_lo(mask, sum);
}
HIP_DEVICE unsigned int __mbcnt_hi(unsigned int mask, unsigned int sum) {
    return __builtin_amdgcn_mbcnt_hi(mask, sum);
}
HIP_DEVICE __attribute__((convergent)) int __hip_ds_bpermute(int lane_times_4, int value) {
    return __builtin_amdgcn_ds_bpermute(lane_times_4, value);
}
HIP_DEVICE __attribute__((convergent)) float __hip_ds_bpermutef(int lane_times_4, float value) {
    return __builtin_bit_cast(
        float, __builtin_amdgcn_ds_bpermute(lane_times_4, __builtin_bit_cast(int, value)));
}
HIP_DEVICE __attribute__((convergent)) int __hip_ds_permute(int lane_times_4, int value) {
    return __builtin_amdgcn_ds_permute(lane_times_4, value);
}
HIP_DEVICE __attribute__((convergent)) float __hip_ds_permutef(int lane_times_4, float value) {
    return __builtin_bit_cast(
        float, __builtin_amdgcn_ds_permute(lane_times_4, __builtin_bit_cast(int, value)));
}
#define __hip_ds_swizzle(value, pattern) __builtin_amdgcn_ds_swizzle(value, pattern)
#define __hip_ds_swizzlef(value, pattern)                                                          \
    __builtin_bit_cast(float, __builtin_amdgcn_ds_swizzle(__builtin_bit_cast(int, value), pattern))
#define __hip_move_dpp(value, control, row_mask, bank_mask, bound_control)                         \
    __builtin_amdgcn_mov_dpp(value, control, row_mask, bank_mask, bound_control)

// The value in the first active lane.
template <typename T>
HIP_DEVICE __attribute__((convergent)) T __hip_readfirstlane(HIP_MAYBE_UNSET T value) {
    static_assert(sizeof(T) % 4 == 0, "whole 32-bit words are read");
    int words[sizeof(T) / 4];
    __builtin_memcpy(words, &value, sizeof(T));
    for (unsigned int i = 0; i < sizeof(T) / 4; i++)
        words[i] = __builtin_amdgcn_readfirstlane(words[i]);
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}

// The lanes that have this lane's value; all active lanes if they have the same value, else none.
template <typename T>
HIP_DEVICE __attribute__((convergent)) unsigned long long __match_any(T value) {
    unsigned long long equal = 0;
    bool found = false;
    while (__any(!found)) {
        if (!found) { // a round for each value
            bool first = __hip_readfirstlane(value) == value;
            unsigned long long lanes = __ballot(first);
            equal = first ? lanes : 0;
            found = first;
        }
    }
    return equal;
}
template <typename T>
HIP_DEVICE __attribute__((convergent)) unsigned long long __match_all(T value, int *same) {
    *same = __all(__hip_readfirstlane(value) == value);
    return *same ? __activemask() : 0;
}
