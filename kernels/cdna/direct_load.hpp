// Loads of an operand's tile from global memory straight to LDS, and reads of its fragments.
//
// A DirectLoader moves a thread's share of a tile: `num_loads` units of `direct_load_bytes`. No
// registers hold the data, so any number of tiles may be in flight. A wave's loads arrive in order
// and count in vmcnt; other waves may read them after the wave has waited for them and a barrier
// (load_and_lds_barrier).
//
// The last tile along k may be ragged. It is loaded to registers instead, where elements beyond the
// matrix become zero, and written to LDS from there.
#pragma once

#include "cdna/buffer.hpp"
#include "cdna/direct_operand.hpp"
#include "cdna/registers.hpp"
#include "cdna/schedule.hpp"
#include "cdna/tile.hpp"
#include "cdna/vector_end.hpp"

namespace cupygemm {

template <class Operand> struct DirectLoader {
    using Map = DirectMap<Operand>;
    static constexpr Major major = Operand::major;
    static constexpr int element_bytes = OperandTile<Operand>::element_bytes;
    static constexpr int num_threads = Operand::num_threads;
    static constexpr int num_loads =
        OperandTile<Operand>::bytes / (num_threads * direct_load_bytes);

    using End = VectorEnd<element_bytes>;
    // Units in registers: 16 bytes each, of which only the first direct_load_bytes are used.
    struct RaggedUnits {
        u32x4 data[num_loads];
        typename End::Last last[num_loads]; // the elements just before the end of the matrix
    };

    static_assert(num_loads >= 1 &&
                      OperandTile<Operand>::bytes % (num_threads * direct_load_bytes) == 0,
                  "every thread must load the same number of whole units");
    static_assert(Operand::dword_aligned, "loads to LDS fetch whole dwords");
    static_assert(element_bytes <= direct_load_bytes, "a unit must hold whole elements");

    Window window; // from the workgroup's first row, at the k of the next load
    i64 tile_step; // bytes between tiles along k
    u64 next_base; // of the buffer resource for that load
    u32 next_bytes;
    u32 thread;
    u32 wave_offset; // LDS bytes from the start of the tile to the wave's first unit
    // Bytes from window.base to unit i: a part that depends on the lane, and a uniform part. The
    // lane's part is the same for most i.
    u32 lane_offset[num_loads];
    u32 wave_uniform[num_loads];

    // `matrix` is the address of element (0, 0), `row0` and `k0` are the first row and the first k
    // of the first tile, and `pitch` counts elements. `wave` must be uniform.
    CUPYGEMM_INLINE DirectLoader(u64 matrix, i64 pitch, i32 num_rows, i32 num_k, u32 row0, i32 k0,
                                 u32 thread_id, u32 wave)
        : thread(thread_id), wave_offset(wave * wave_size * direct_load_bytes) {
        const i64 row_step = (major == Major::k ? pitch : 1) * element_bytes;
        const i64 k_step = (major == Major::k ? 1 : pitch) * element_bytes;
        const i64 end = (num_rows - 1) * row_step + (num_k - 1) * k_step + element_bytes;
        window = {matrix, end};
        window.advance(row0 * row_step + k0 * k_step);
        tile_step = Operand::tile_k * k_step;
#pragma unroll
        for (int i = 0; i < num_loads; ++i) {
            // A row-major unit beyond the last row would be other columns of a larger matrix, which
            // another stream may be writing. It is not read.
            const bool is_row = major == Major::k || static_cast<i32>(row0 + row(i)) < num_rows;
            lane_offset[i] = is_row ? lane_row(i) * static_cast<u32>(row_step) +
                                          lane_k(i) * static_cast<u32>(k_step)
                                    : out_of_range;
            wave_uniform[i] = Map::uniform_row(i) * static_cast<u32>(row_step) +
                              Map::uniform_k(i) * static_cast<u32>(k_step);
        }
    }

    // The first row and the first k of unit i in the tile, without their uniform parts.
    CUPYGEMM_INLINE u32 lane_row(int i) const {
        return Map::row_of(thread) ^ (Map::row_of(i * num_threads) - Map::uniform_row(i));
    }
    CUPYGEMM_INLINE u32 lane_k(int i) const {
        return Map::k_of(thread) ^ (Map::k_of(i * num_threads) - Map::uniform_k(i));
    }
    CUPYGEMM_INLINE u32 row(int i) const { return lane_row(i) + Map::uniform_row(i); }
    CUPYGEMM_INLINE u32 k(int i) const { return lane_k(i) + Map::uniform_k(i); }
    CUPYGEMM_INLINE u32 offset(int i) const { return lane_offset[i] + wave_uniform[i]; }

    // Compute the resource of the tile at the window, and advance the window by one tile. The tile
    // must lie inside the matrix along k. Rows beyond the end of the matrix read zero or any other
    // element, which affects only rows of C that do not exist. If `exists` is false there is no
    // such tile, and its loads read nothing.
    CUPYGEMM_INLINE void prepare(bool exists) {
        next_base = window.base;
        next_bytes = reach(window) & ~3u & (0u - exists);
        window.advance(tile_step);
    }

    // Force the results of `prepare` to be computed here rather than at their first use.
    CUPYGEMM_INLINE void prepare_now() {
        compute_now(next_base);
        compute_now(next_bytes);
        compute_now(window.base);
        u64 bytes = window.bytes;
        compute_now(bytes);
        window.bytes = bytes;
    }

    // Start loading the prepared tile to LDS.
    CUPYGEMM_INLINE void load(LdsBase tile) const {
        load(make_resource(next_base, next_bytes), tile);
    }

    CUPYGEMM_INLINE void load(Resource memory, LdsBase tile) const {
#pragma unroll
        for (int i = 0; i < num_loads; ++i)
            buffer_load_lds(memory, tile + (wave_offset + i * num_threads * direct_load_bytes),
                            lane_offset[i], wave_uniform[i]);
    }

    // -- The last tile along k --------------------------------------------------------------------

    // Start loading tile `tile_index`, which needs no masks.
    CUPYGEMM_INLINE void load_last(LdsBase tile, i64 tile_index) const {
        Window last = window;
        last.advance(tile_index * tile_step);
        load(resource(last), tile);
    }

    // Start loading tile `tile_index`. `rows_left` of its rows and `k_left` of its values of k are
    // inside the matrix, at least one of each. `resource` reads nothing of the dword that holds the
    // end of the matrix, so the elements in that dword are loaded once more, one by one.
    CUPYGEMM_INLINE void load_ragged(RaggedUnits &units, i64 tile_index, i32 rows_left,
                                     i32 k_left) const {
        Window tile = window;
        tile.advance(tile_index * tile_step);
        const Resource memory = resource(tile);
        const Resource exact = exact_resource(tile);
#pragma unroll
        for (int i = 0; i < num_loads; ++i) {
            const u32 from = static_cast<i32>(k(i)) < k_left ? offset(i) : out_of_range;
            if constexpr (direct_load_bytes == 16)
                units.data[i] = buffer_load_b128(memory, from);
            else
                units.data[i] = u32x4{buffer_load_b32(memory, from), 0, 0, 0};
            units.last[i] = End::load(exact, offset(i), num_valid(*this, i, rows_left, k_left));
        }
    }

    // Write the units to LDS, with zeros beyond the matrix.
    CUPYGEMM_INLINE void store_ragged(LdsBase tile, const RaggedUnits &units, i32 rows_left,
                                      i32 k_left) const {
#pragma unroll
        for (int i = 0; i < num_loads; ++i) {
            // Without settled_here, the comparisons would be kept from the load on, in scalar
            // registers.
            const u32 valid = settled_here(num_valid(*this, i, rows_left, k_left));
            const u32x4 whole = End::cut(units.data[i], units.last[i], static_cast<i32>(valid));
            const u32 at = (thread + i * num_threads) * direct_load_bytes;
            if constexpr (direct_load_bytes == 16)
                ds_write_b128(tile, at, whole);
            else
                ds_write_b32(tile, at, whole.x);
            end_phase(); // the comparisons of all units together would not fit in scalar registers
        }
    }
};

// A wave's view of a directly loaded tile. K-major tiles have the usual layout.
template <class Operand, Major major = Operand::major> struct DirectReader
    : FragmentReader<Operand> {
    using FragmentReader<Operand>::FragmentReader;
};

template <class Operand> struct DirectReader<Operand, Major::row> {
    using Map = TransposeMap<Operand>;
    static constexpr int reads_per_fragment = 2;

    const u32 lane_offset;

    CUPYGEMM_INLINE DirectReader(u32 wave, u32 lane) : lane_offset(Map::lds_of_lane(wave, lane)) {}

    CUPYGEMM_INLINE u32x4 read(LdsBase tile, u32 fragment, u32 step) const {
        u32x2 half[2];
#pragma unroll
        for (u32 i = 0; i < 2; ++i)
            half[i] = ds_read_b64_tr_b16(
                tile, Map::Layout::combine(lane_offset, Map::lds_of_step(fragment, step, i)));
        return u32x4{half[0].x, half[0].y, half[1].x, half[1].y};
    }
};

template <class T> CUPYGEMM_INLINE void exchange_if(bool condition, T &x, T &y) {
    const T kept = x;
    x = condition ? y : kept;
    y = condition ? kept : y;
}

// Undo the swap of halves that TransposeMap makes for the 16x16 instruction, after the mainloop: in
// odd quarters of a fragment's rows, the accumulators of a fragment and of its neighbour change
// places.
template <class Config> CUPYGEMM_INLINE void unswap_fragments(Accumulators<Config> &acc, u32 lane) {
    using Acc = Accumulators<Config>;
    if constexpr (Config::a_major == Major::row && Config::mma_m == 16) {
        const bool odd =
            lane / 4 % 2 != 0; // lane l holds column l % 16 of the instruction's result
#pragma unroll
        for (int fm = 0; fm < Acc::fragments_m; fm += 2)
#pragma unroll
            for (int fn = 0; fn < Acc::fragments_n; ++fn)
                exchange_if(odd, acc.registers[fm][fn], acc.registers[fm + 1][fn]);
    }
    if constexpr (Config::b_major == Major::row && Config::mma_n == 16) {
        const bool odd = lane / 16 % 2 != 0; // and rows 4 (l / 16) to 4 (l / 16) + 3
#pragma unroll
        for (int fm = 0; fm < Acc::fragments_m; ++fm)
#pragma unroll
            for (int fn = 0; fn < Acc::fragments_n; fn += 2)
                exchange_if(odd, acc.registers[fm][fn], acc.registers[fm][fn + 1]);
    }
}

} // namespace cupygemm
