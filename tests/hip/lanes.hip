// Cross-lane instructions: permutes, swizzles, DPP, lane reads and writes, ballots.
#include "prelude.hpp"

KERNEL void permutes(const int *x, int *out) {
    const int l = static_cast<int>(lane()), v = x[l];
    int *o = out + l * 8;
    o[0] = __builtin_amdgcn_ds_bpermute(4 * ((l * 7 + 3) % 64), v);
    o[1] = __builtin_amdgcn_ds_permute(4 * ((l * 5 + 1) % 64), v);
    o[2] = __builtin_amdgcn_ds_swizzle(v, 0x8000 | 0x1b); // quad_perm 3,2,1,0
    o[3] = __builtin_amdgcn_ds_swizzle(v, 0x041f);        // xor 1
    o[4] = __builtin_amdgcn_ds_swizzle(v, 0x7c1f);        // reverse 32
    o[5] = __builtin_amdgcn_ds_swizzle(v, 0x0018);        // broadcast of 8
    o[6] = __builtin_amdgcn_readfirstlane(v);
    o[7] = __builtin_amdgcn_readlane(v, 37);
}

KERNEL void dpp(const int *x, int *out) {
    const int l = static_cast<int>(lane()), v = x[l];
    int *o = out + l * 10;
    o[0] = __builtin_amdgcn_update_dpp(-1, v, 0x1b, 0xf, 0xf, false);  // quad_perm:[3,2,1,0]
    o[1] = __builtin_amdgcn_update_dpp(-1, v, 0x101, 0xf, 0xf, false); // row_shl:1
    o[2] = __builtin_amdgcn_update_dpp(-1, v, 0x113, 0xf, 0xf, true);  // row_shr:3, zeros
    o[3] = __builtin_amdgcn_update_dpp(-1, v, 0x125, 0xf, 0xf, false); // row_ror:5
    o[4] = __builtin_amdgcn_update_dpp(-1, v, 0x140, 0xf, 0xf, false); // row_mirror
    o[5] = __builtin_amdgcn_update_dpp(-1, v, 0x141, 0xf, 0xf, false); // row_half_mirror
    o[6] = __builtin_amdgcn_update_dpp(-1, v, 0x142, 0xa, 0xf, false); // row_bcast:15, odd rows
    o[7] = __builtin_amdgcn_update_dpp(-1, v, 0x138, 0xf, 0xf, false); // wave_shr:1
    o[8] = __builtin_amdgcn_update_dpp(-1, v, 0x134, 0xf, 0xf, false); // wave_rol:1
    o[9] = __builtin_amdgcn_update_dpp(-1, v, 0x111, 0x3, 0x5, false); // some rows, some banks
}

KERNEL void ballots(const int *x, u64 *masks, u32 *counts) {
    const int v = x[thread_x()];
    const u64 odd = __builtin_amdgcn_ballot_w64(v & 1);
    u64 large = 0;
    if (v > 50)
        large = __builtin_amdgcn_ballot_w64(true);
    const u32 before = __builtin_amdgcn_mbcnt_hi(
        static_cast<u32>(odd >> 32), __builtin_amdgcn_mbcnt_lo(static_cast<u32>(odd), 0));
    counts[thread_x()] = before + 1000 * static_cast<u32>(__builtin_popcountll(odd));
    masks[thread_x()] = v > 50 ? large : odd;
}

// Compaction: the lanes that keep their value write them one after another.
KERNEL void compact(const int *x, int *out, u32 *kept) {
    const int v = x[lane()];
    const u64 mask = __builtin_amdgcn_ballot_w64(v % 3 == 0);
    const u32 place = __builtin_amdgcn_mbcnt_hi(
        static_cast<u32>(mask >> 32), __builtin_amdgcn_mbcnt_lo(static_cast<u32>(mask), 0));
    if (v % 3 == 0)
        out[place] = v;
    if (lane() == 0)
        *kept = static_cast<u32>(__builtin_popcountll(mask));
}

// One pass per distinct value: the wave loops until every lane has been served.
KERNEL void distinct(const int *x, int *out) {
    const int v = x[lane()];
    int order = 0, mine = -1;
    bool waiting = true;
    while (waiting) {
        const int first = __builtin_amdgcn_readfirstlane(v);
        if (v == first) {
            mine = order;
            waiting = false;
        }
        ++order;
    }
    out[lane()] = mine;
}

#if defined(__gfx950__)
KERNEL void swaps(const u32 *x, const u32 *y, u32 *out) {
    const u32 l = lane();
    const auto sixteen = __builtin_amdgcn_permlane16_swap(x[l], y[l], false, false);
    const auto thirty_two = __builtin_amdgcn_permlane32_swap(x[l], y[l], false, false);
    out[4 * l] = sixteen[0];
    out[4 * l + 1] = sixteen[1];
    out[4 * l + 2] = thirty_two[0];
    out[4 * l + 3] = thirty_two[1];
}
#endif
