// Which blocks of a cluster share which operand.
//
// Block `rank` is in row rank % cluster_m and column rank / cluster_m of its cluster's tiles. The
// blocks of a row of tiles need the same rows of A; those of a column need the same columns of B.
// Each loads an equal share of such an operand and multicasts it to all that need it. A block's
// stage is therefore written by all blocks of its row and column, and may be overwritten when all
// of them have released it.
#pragma once

#include "hopper/cluster.cuh"

namespace cupygemm {

template <class Config> struct Multicast {
    static constexpr u32 rows = Config::cluster_m, columns = Config::cluster_n;
    // The blocks of a block's row and of its column, including itself.
    static constexpr u32 num_peers = rows + columns - 1;

    CUPYGEMM_INLINE static u32 row(u32 rank) {
        return rows == 1 ? 0 : columns == 1 ? rank : rank % rows;
    }
    CUPYGEMM_INLINE static u32 column(u32 rank) {
        return columns == 1 ? 0 : rows == 1 ? rank : rank / rows;
    }

    // The ranks that need what `rank` loads of A or of B, as a bit mask.
    CUPYGEMM_INLINE static u16 wants_a(u32 rank) {
        u32 first_row = 0;
#pragma unroll
        for (u32 i = 0; i < columns; ++i)
            first_row |= 1u << i * rows;
        return static_cast<u16>(first_row << row(rank));
    }
    CUPYGEMM_INLINE static u16 wants_b(u32 rank) {
        constexpr u32 first_column = (1u << rows) - 1;
        return static_cast<u16>(first_column << column(rank) * rows);
    }

    // The rank of peer `i` of this block; the peers of its row come first.
    CUPYGEMM_INLINE static u32 peer(u32 i) {
        if constexpr (rows == 1 || columns == 1)
            return i;
        const u32 rank = cluster_rank(), own_row = row(rank);
        if (i < columns)
            return own_row + i * rows;
        const u32 other = i - columns;
        return column(rank) * rows + other + (other >= own_row ? 1 : 0);
    }
};

} // namespace cupygemm
