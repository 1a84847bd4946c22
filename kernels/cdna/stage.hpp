// Staging: moves an operand's tile from global memory through registers to LDS.
//
// A Stager moves a thread's share of a tile: `num_vectors` vectors of 16 bytes. `load` starts their
// loads; `store` writes them to LDS, from where they are read in K-major rows:
//
//   Major::k    A vector is one chunk of a row, and is written as it is (ds_write_b128).
//   Major::row  A vector is 16 bytes of rows at one k. A thread loads `depth` vectors of
//               consecutive k, transposes the block in registers (transpose.hpp), and writes
//               `depth` values of k for each of the rows (ds_write_b32, _b64 or _b128).
//
// On targets with transposing LDS reads, a row-major vector of elements of up to 16 bits is written
// without a transposition, and reads transpose it (transposed_operand.hpp).
//
// No case has bank conflicts, and in every case 8 consecutive lanes read 128 consecutive bytes of
// memory.
//
// If the address or the pitch of a matrix is an odd number of 16-bit elements, rows may start in
// the middle of a dword. A vector is then read as the 5 dwords around it and shifted into place.
//
// The last tile along k may be ragged: `load_ragged` and `store_ragged` put zeros beyond the
// matrix.
#pragma once

#include "cdna/buffer.hpp"
#include "cdna/registers.hpp"
#include "cdna/tile.hpp"
#include "cdna/transpose.hpp"
#include "cdna/transposed_operand.hpp"
#include "cdna/vector_end.hpp"

namespace cupygemm {

template <class Operand> struct Stager {
    using Map = VectorMap<Operand>;
    using Layout = typename Map::Layout;
    static constexpr Major major = Operand::major;
    static constexpr bool transposed = transposed_by_reads<Operand>();
    // A vector is stored whole, by one write. Otherwise it belongs to a block that is transposed.
    static constexpr bool stores_vectors = major == Major::k || transposed;
    static constexpr int element_bytes = OperandTile<Operand>::element_bytes;
    static constexpr int elements = Map::elements; // per vector
    static constexpr int num_vectors = Map::num_vectors;
    static constexpr int num_threads = Operand::num_threads;
    // Instruction counts of load and of store.
    static constexpr int num_loads = (Operand::dword_aligned ? 1 : 2) * num_vectors;
    static constexpr int num_writes = Map::num_writes;

    using End = VectorEnd<element_bytes>;

    static_assert(Operand::dword_aligned || element_bytes == 2,
                  "only halves of dwords can be shifted into place");

    // A thread's vectors of one tile, as loaded.
    struct Vectors {
        u32x4 data[num_vectors];
        u32 fifth[Operand::dword_aligned ? 1 : num_vectors]; // the dword after data, if needed
    };
    struct RaggedVectors {
        Vectors vectors;
        typename End::Last last[num_vectors]; // the elements just before the end of the matrix
    };

    Window window; // from the workgroup's first row, at the k of the next load
    i64 tile_step; // bytes between tiles along k
    u32 thread;
    // Bytes from window.base to vector i: a part that depends on the lane, and a uniform part. Only
    // vectors that reads transpose have a uniform part, which the load instruction adds: registers
    // are scarce where they are used. The lane's part is the same for most of these, and for all of
    // them with e2m1x2: its kernels have no register left for another one.
    static constexpr bool one_lane_offset =
        transposed && __is_same(typename Operand::Element, e2m1x2);
    u32 lane_offset[num_vectors];
    u32 uniform[num_vectors];

    // `matrix` is the address of element (0, 0), `row0` and `k0` are the first row and the first k
    // of the first tile, and `pitch` counts elements.
    CUPYGEMM_INLINE Stager(u64 matrix, i64 pitch, i32 num_rows, i32 num_k, u32 row0, i32 k0,
                           u32 thread_id)
        : thread(thread_id) {
        const i64 row_step = (major == Major::k ? pitch : 1) * element_bytes;
        const i64 k_step = (major == Major::k ? 1 : pitch) * element_bytes;
        const i64 end = (num_rows - 1) * row_step + (num_k - 1) * k_step + element_bytes;
        const u32 misalignment = Operand::dword_aligned ? 0 : static_cast<u32>(matrix & 2);

        // The base stays a multiple of 4 whatever the pitch, since row0, k0 and tile_k are even.
        window = {matrix - misalignment, end + misalignment};
        window.advance(row0 * row_step + k0 * k_step);
        tile_step = Operand::tile_k * k_step;
#pragma unroll
        for (int i = 0; i < num_vectors; ++i) {
            const u32 uniform_row = transposed ? Map::row_of(i * num_threads) : 0;
            const u32 uniform_k = transposed ? Map::k_of(i * num_threads) : 0;
            const u32 lane = misalignment + (row(i) - uniform_row) * static_cast<u32>(row_step) +
                             (k(i) - uniform_k) * static_cast<u32>(k_step);
            uniform[i] =
                uniform_row * static_cast<u32>(row_step) + uniform_k * static_cast<u32>(k_step);
            // A row-major vector beyond the last row would be other columns of a larger matrix,
            // which another stream may be writing. It is not read.
            const u32 first = one_lane_offset ? row(0) : row(i);
            const bool is_row = major == Major::k || static_cast<i32>(row0 + first) < num_rows;
            lane_offset[i] = is_row ? lane : out_of_range;
        }
    }

    CUPYGEMM_INLINE u32 offset(int i) const { return lane_offset[i] + uniform[i]; }

    // The first row and the first k of vector i in the tile. The parts of the thread and of i have
    // no bits in common, so the part of i is a constant.
    CUPYGEMM_INLINE u32 row(int i) const {
        if constexpr (stores_vectors)
            return Map::row_of(thread) + Map::row_of(i * num_threads);
        else
            return Map::row_of(thread) + Map::row_of(i / Map::depth * num_threads);
    }
    CUPYGEMM_INLINE u32 k(int i) const {
        if constexpr (stores_vectors)
            return Map::k_of(thread) + Map::k_of(i * num_threads);
        else
            return Map::k_of(thread) + Map::k_of(i / Map::depth * num_threads) + i % Map::depth;
    }

    // -- Whole tiles ------------------------------------------------------------------------------

    // Start loading the tile at the window, and advance the window by one tile. The tile must lie
    // inside the matrix along k. Rows beyond the end of the matrix read zero or any other element,
    // which affects only rows of C that do not exist. If `exists` is false there is no such tile,
    // and nothing is read.
    CUPYGEMM_INLINE void load(Vectors &vectors, bool exists) {
        load_part(vectors, exists, 0, num_vectors);
        advance();
    }

    CUPYGEMM_INLINE void store(LdsBase tile, const Vectors &vectors) const {
        store_part(tile, vectors, 0, num_vectors);
    }

    // Load or store vectors [first, last) of the tile at the window. Row-major blocks are stored
    // whole.
    CUPYGEMM_INLINE void load_part(Vectors &vectors, bool exists, int first, int last) const {
        const Resource memory = resource(window, exists);
#pragma unroll
        for (int i = first; i < last; ++i)
            load_vector(vectors, i, memory, lane_offset[i], uniform[i]);
    }

    CUPYGEMM_INLINE void store_part(LdsBase tile, const Vectors &vectors, int first,
                                    int last) const {
        u32x4 shifted[num_vectors];
#pragma unroll
        for (int i = first; i < last; ++i)
            shifted[i] = shift_vector(vectors, i);
        put(tile, shifted, first, last);
    }

    CUPYGEMM_INLINE void advance() { window.advance(tile_step); }

    CUPYGEMM_INLINE static void load_vector(Vectors &vectors, int i, Resource memory, u32 at,
                                            u32 scalar_offset) {
        if constexpr (Operand::dword_aligned) {
            vectors.data[i] = buffer_load_b128(memory, at, scalar_offset);
        } else {
            vectors.data[i] = buffer_load_b128(memory, at & ~3u);
            vectors.fifth[i] = buffer_load_b32(memory, (at & ~3u) + 16);
        }
    }

    // Vector i, shifted so that its first element is in the first half of the first dword.
    CUPYGEMM_INLINE u32x4 shift_vector(const Vectors &vectors, int i) const {
        const u32x4 d = vectors.data[i];
        if constexpr (Operand::dword_aligned) {
            return d;
        } else {
            const u32 by = offset(i); // v_alignbyte_b32 uses only the last two bits
            return u32x4{__builtin_amdgcn_alignbyte(d.y, d.x, by),
                         __builtin_amdgcn_alignbyte(d.z, d.y, by),
                         __builtin_amdgcn_alignbyte(d.w, d.z, by),
                         __builtin_amdgcn_alignbyte(vectors.fifth[i], d.w, by)};
        }
    }

    CUPYGEMM_INLINE void put(LdsBase tile, const u32x4 (&vectors)[num_vectors], int first,
                             int last) const {
        if constexpr (stores_vectors) {
            const u32 at = Map::lds_of(thread);
#pragma unroll
            for (int i = first; i < last; ++i)
                ds_write_b128(tile, Layout::combine(at, Map::lds_of(i * num_threads)),
                              arranged(vectors[i], i));
        } else {
            const u32 at = Map::lds_of(thread, 0);
#pragma unroll
            for (int block = first / Map::depth; block < last / Map::depth; ++block)
#pragma unroll
                for (int j = 0; j < elements; ++j)
                    put_row(tile, Layout::combine(at, Map::lds_of(block * num_threads, j)),
                            vectors + block * Map::depth, j);
        }
    }

    // Vector i as it lies in LDS.
    CUPYGEMM_INLINE static u32x4 arranged(u32x4 vector, int i) {
        if constexpr (!transposed)
            return vector;
        else if constexpr (element_bytes == 2)
            return Map::swaps_halves(i) ? u32x4{vector.z, vector.w, vector.x, vector.y} : vector;
        else if (Map::swaps_halves(i))
            return u32x4{vector.y, vector.w, vector.x, vector.z};
        else
            return u32x4{vector.x, vector.z, vector.y, vector.w};
    }

    // Store row j of a block of `depth` vectors: (k, row) -> (row, k).
    CUPYGEMM_INLINE static void put_row(LdsBase tile, u32 at, const u32x4 *block, int j) {
        constexpr int num_words = Map::depth * element_bytes / 4;
        u32 words[num_words];
#pragma unroll
        for (int i = 0; i < num_words; ++i)
            words[i] = transposed_word<element_bytes>(block, j, i);
        if constexpr (num_words == 4)
            ds_write_b128(tile, at, u32x4{words[0], words[1], words[2], words[3]});
        else if constexpr (num_words == 2)
            ds_write_b64(tile, at, u32x2{words[0], words[1]});
        else
            ds_write_b32(tile, at, words[0]);
    }

    // -- The ragged tile --------------------------------------------------------------------------

    // Start loading tile `tile_index`. `rows_left` of its rows and `k_left` of its values of k are
    // inside the matrix, at least one of each.
    //
    // The last elements of a row (Major::k) or of a k (Major::row) may share their dword with the
    // end of the matrix. `resource` reads nothing of that dword, so they are loaded once more, one
    // by one.
    CUPYGEMM_INLINE void load_ragged(RaggedVectors &ragged, i64 tile_index, i32 rows_left,
                                     i32 k_left) const {
        Window tile = window;
        tile.advance(tile_index * tile_step);
        const Resource memory = resource(tile);
        const Resource exact = exact_resource(tile);
#pragma unroll
        for (int i = 0; i < num_vectors; ++i) {
            const bool inside = static_cast<i32>(k(i)) < k_left;
            load_vector(ragged.vectors, i, memory, inside ? offset(i) : out_of_range, 0);
            ragged.last[i] = End::load(exact, offset(i), num_valid(*this, i, rows_left, k_left));
        }
    }

    CUPYGEMM_INLINE void store_ragged(LdsBase tile, const RaggedVectors &ragged, i32 rows_left,
                                      i32 k_left) const {
        u32x4 vectors[num_vectors];
#pragma unroll
        for (int i = 0; i < num_vectors; ++i)
            vectors[i] = shift_vector(ragged.vectors, i);
        if (!is_whole<Operand>(rows_left, k_left)) {
#pragma unroll
            for (int i = 0; i < num_vectors; ++i) {
                // Without settled_here, the comparisons for all vectors of both operands would be
                // kept from the loads on, in more scalar registers than exist.
                const u32 valid = settled_here(num_valid(*this, i, rows_left, k_left));
                vectors[i] = End::cut(vectors[i], ragged.last[i], static_cast<i32>(valid));
            }
        }
        put(tile, vectors, 0, num_vectors);
    }
};

} // namespace cupygemm
