// How the blocks of a cluster share operands.
//
// Block `rank` is in row rank % cluster_m and column rank / cluster_m of its cluster's tiles. The
// blocks of a row of tiles need the same rows of A; those of a column need the same columns of B.
// Each loads an equal share of such an operand and multicasts it to all that need it. A block's
// stage is therefore written by all blocks of its row and column, and may be overwritten when all
// of them have released it. If the blocks of a cluster also have different parts of k
// (`cluster_k`), those of a part have adjacent ranks, and share operands only among themselves.
#pragma once

#include "hopper/cluster.cuh"

namespace cupygemm {

template <class Config> struct Multicast {
    static constexpr u32 rows = Config::cluster_m, columns = Config::cluster_n;
    static constexpr u32 of_part = rows * columns;
    static constexpr bool has_parts = Config::cluster_k > 1;
    // The blocks of a block's row and of its column, including itself.
    static constexpr u32 num_peers = rows + columns - 1;

    CUPYGEMM_INLINE static u32 row(u32 rank) {
        return rows == 1 ? 0 : columns == 1 && !has_parts ? rank : rank % rows;
    }
    CUPYGEMM_INLINE static u32 column(u32 rank) {
        const u32 column = rows == 1 ? rank : rank / rows;
        return columns == 1 ? 0 : has_parts ? column % columns : column;
    }
    // The part of k of a block, and the lowest rank of its part.
    CUPYGEMM_INLINE static u32 part(u32 rank) { return has_parts ? rank / of_part : 0; }
    CUPYGEMM_INLINE static u32 first(u32 rank) { return part(rank) * of_part; }

    // The ranks that need the share of A or of B that `rank` loads, as a bit mask.
    CUPYGEMM_INLINE static u16 wants_a(u32 rank) {
        u32 first_row = 0;
#pragma unroll
        for (u32 i = 0; i < columns; ++i)
            first_row |= 1u << i * rows;
        return static_cast<u16>(first_row << (first(rank) + row(rank)));
    }
    CUPYGEMM_INLINE static u16 wants_b(u32 rank) {
        constexpr u32 first_column = (1u << rows) - 1;
        return static_cast<u16>(first_column << (first(rank) + column(rank) * rows));
    }

    // The rank of peer `i` of this block; the peers of its row come first.
    CUPYGEMM_INLINE static u32 peer(u32 i) {
        if constexpr ((rows == 1 || columns == 1) && !has_parts)
            return i;
        const u32 rank = cluster_rank(), own_row = row(rank);
        if constexpr (rows == 1 || columns == 1)
            return first(rank) + i;
        if (i < columns)
            return first(rank) + own_row + i * rows;
        const u32 other = i - columns;
        return first(rank) + column(rank) * rows + other + (other >= own_row ? 1 : 0);
    }
};

} // namespace cupygemm
