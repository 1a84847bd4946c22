// A wave's slice of an operand, read from global memory straight into fragments, without LDS.
//
// A slice is `num_steps` k steps of 64 bytes each. The matrix instruction requires lane l to hold
// row l % 16 of a fragment and chunk l / 16 of a step: 16 bytes of k. They are loaded as follows:
//
//   LongSlice, Major::k     one 16-byte load; two steps are a line of 128 bytes of each row.
//   LongSlice, Major::row   one load per element of a vector, each 16 bytes of rows at one k,
//                           transposed in registers; 16 lanes read 256 bytes or more at one k. The
//                           rows of a vector belong to different fragments, so the fragments
//                           interleave: row i of fragment f is row i * elements + f.
//   ShortSlice, Major::k    like LongSlice; its one fragment has 16 rows.
//   ShortSlice, Major::row  element by element; they are few, and in L2.
//
// `load` reads a slice that lies inside the matrix along k. `load_ragged` reads one that may not,
// and puts zeros beyond the matrix. Rows beyond the matrix affect only elements of C that do not
// exist.
#pragma once

#include "cdna/buffer.hpp"
#include "cdna/operand.hpp"
#include "cdna/registers.hpp"
#include "cdna/transpose.hpp"
#include "cdna/vector_end.hpp"

namespace cupygemm {

constexpr u32 slice_rows = 16;     // per fragment
constexpr u32 chunks_per_step = 4; // of 16 bytes each: the lanes that share a row

// Common to both slices: a window that starts at the workgroup's first row and the next tile's k.
template <class Operand> struct SliceWindow {
    static constexpr int element_bytes = Numeric<typename Operand::Element>::bytes;
    static constexpr u32 elements = 16 / element_bytes; // per chunk
    static constexpr Major major = Operand::major;

    static_assert(Operand::dword_aligned, "rows must start at dwords");

    Window window;
    const i64 tile_step;        // bytes between tiles along k
    const u32 row_step, k_step; // bytes between elements
    const i32 rows_left;        // from the workgroup's first row on

    CUPYGEMM_INLINE SliceWindow(u64 matrix, i64 pitch, i32 num_rows, i32 num_k, u32 row0, i32 k0)
        : tile_step(Operand::tile_k * bytes_along_k(pitch)),
          row_step(static_cast<u32>(bytes_along_rows(pitch))),
          k_step(static_cast<u32>(bytes_along_k(pitch))),
          rows_left(num_rows - static_cast<i32>(row0)) {
        window = {matrix, (num_rows - 1) * bytes_along_rows(pitch) +
                              (num_k - 1) * bytes_along_k(pitch) + element_bytes};
        window.advance(row0 * bytes_along_rows(pitch) + k0 * bytes_along_k(pitch));
    }

    CUPYGEMM_INLINE static i64 bytes_along_rows(i64 pitch) {
        return (major == Major::k ? pitch : 1) * element_bytes;
    }
    CUPYGEMM_INLINE static i64 bytes_along_k(i64 pitch) {
        return (major == Major::k ? 1 : pitch) * element_bytes;
    }

    CUPYGEMM_INLINE u32 offset(u32 row, u32 k) const { return row * row_step + k * k_step; }

    // The window of the tile that is `index` tiles further.
    CUPYGEMM_INLINE Window tile(i64 index) const {
        Window there = window;
        there.advance(index * tile_step);
        return there;
    }
};

template <class Operand, u32 num_steps> struct LongSlice {
    using At = SliceWindow<Operand>;
    using End = VectorEnd<At::element_bytes>;
    static constexpr u32 elements = At::elements;
    static constexpr u32 num_fragments = Operand::tile_rows / slice_rows;
    // The number of fragments whose rows interleave: those of one vector.
    static constexpr u32 interleaved = Operand::major == Major::k ? 1 : elements;

    static_assert(num_fragments % interleaved == 0,
                  "a row-major tile must have whole vectors of rows for each of 16 lanes");

    // Major::k: (step, fragment). Major::row: (step, group of fragments, k within the chunk).
    u32x4 vectors[num_steps][num_fragments];

    // The tile row of row i of a fragment.
    CUPYGEMM_INLINE static constexpr u32 row_of(u32 fragment, u32 i) {
        return fragment / interleaved * interleaved * slice_rows + i * interleaved +
               fragment % interleaved;
    }
    // The first k of the lane's chunk of a step, relative to the slice.
    CUPYGEMM_INLINE static u32 k_of(u32 step, u32 lane) {
        return (step * chunks_per_step + lane / slice_rows) * elements;
    }

    // The row and the k of a vector's first element.
    CUPYGEMM_INLINE static u32 vector_row(u32 vector, u32 lane) {
        return row_of(vector / interleaved * interleaved, lane % slice_rows);
    }
    CUPYGEMM_INLINE static u32 vector_k(u32 step, u32 vector, u32 lane) {
        return k_of(step, lane) + vector % interleaved;
    }

    CUPYGEMM_INLINE void load(const At &at, u32 k0, u32 lane, bool exists) {
        const Resource memory = resource(at.window, exists);
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step)
#pragma unroll
            for (u32 v = 0; v < num_fragments; ++v) {
                const u32 offset = at.offset(vector_row(v, lane), k0 + vector_k(step, v, lane));
                vectors[step][v] =
                    buffer_load_b128(memory, is_row(at, v, lane) ? offset : out_of_range);
            }
    }

    // Whether to read a vector. Row-major vectors beyond the last row would be other columns of a
    // larger matrix, which another stream may be writing.
    CUPYGEMM_INLINE static bool is_row(const At &at, u32 vector, u32 lane) {
        return Operand::major == Major::k ||
               static_cast<i32>(vector_row(vector, lane)) < at.rows_left;
    }

    // `rows_left` rows and `k_left` values of k of the tile lie in the matrix.
    CUPYGEMM_INLINE void load_ragged(const At &at, const Window &tile, u32 k0, u32 lane,
                                     i32 rows_left, i32 k_left) {
        const Resource memory = resource(tile), exact = exact_resource(tile);
        typename End::Last last[num_steps][num_fragments];
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step)
#pragma unroll
            for (u32 v = 0; v < num_fragments; ++v) {
                const u32 k = k0 + vector_k(step, v, lane);
                const u32 offset = at.offset(vector_row(v, lane), k);
                const bool inside = static_cast<i32>(k) < k_left && is_row(at, v, lane);
                vectors[step][v] = buffer_load_b128(memory, inside ? offset : out_of_range);
                last[step][v] = End::load(exact, offset, valid(v, k, lane, rows_left, k_left));
            }
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step)
#pragma unroll
            for (u32 v = 0; v < num_fragments; ++v)
                vectors[step][v] =
                    End::cut(vectors[step][v], last[step][v],
                             valid(v, k0 + vector_k(step, v, lane), lane, rows_left, k_left));
    }

    // The number of elements of a vector that lie inside the matrix. They come first; the number
    // may exceed the vector's size. (Without settled_here, the compiler keeps a comparison for each
    // element in scalar registers.)
    CUPYGEMM_INLINE static i32 valid(u32 vector, u32 k, u32 lane, i32 rows_left, i32 k_left) {
        i32 valid = k_left - static_cast<i32>(k);
        if constexpr (Operand::major == Major::row)
            valid = valid > 0 ? rows_left - static_cast<i32>(vector_row(vector, lane)) : 0;
        return static_cast<i32>(settled_here(static_cast<u32>(valid)));
    }

    CUPYGEMM_INLINE u32x4 chunk(u32 step, u32 fragment) const {
        if constexpr (Operand::major == Major::k) {
            return vectors[step][fragment];
        } else {
            const u32x4 *block = vectors[step] + fragment / interleaved * interleaved;
            const int row = fragment % interleaved;
            return u32x4{transposed_word<At::element_bytes>(block, row, 0),
                         transposed_word<At::element_bytes>(block, row, 1),
                         transposed_word<At::element_bytes>(block, row, 2),
                         transposed_word<At::element_bytes>(block, row, 3)};
        }
    }
};

template <class Operand, u32 num_steps> struct ShortSlice {
    using At = SliceWindow<Operand>;
    using End = VectorEnd<At::element_bytes>;
    static constexpr u32 elements = At::elements;

    u32x4 chunks[num_steps]; // (k step)

    CUPYGEMM_INLINE static u32 k_of(u32 step, u32 lane) {
        return (step * chunks_per_step + lane / slice_rows) * elements;
    }

    CUPYGEMM_INLINE void load(const At &at, u32 k0, u32 lane, i32 rows, bool exists) {
        const u32 row = lane % slice_rows;
        const bool inside = static_cast<i32>(row) < rows;
        const Resource memory = resource(at.window, exists);
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step) {
            const u32 offset = inside ? at.offset(row, k0 + k_of(step, lane)) : out_of_range;
            if constexpr (Operand::major == Major::k)
                chunks[step] = buffer_load_b128(memory, offset);
            else
                chunks[step] = gathered(at, memory, offset);
        }
    }

    CUPYGEMM_INLINE void load_ragged(const At &at, const Window &tile, u32 k0, u32 lane, i32 rows,
                                     i32 k_left) {
        const u32 row = lane % slice_rows;
        const bool inside = static_cast<i32>(row) < rows;
#pragma unroll
        for (u32 step = 0; step < num_steps; ++step) {
            const u32 k = k0 + k_of(step, lane);
            const u32 offset = at.offset(row, k);
            const i32 valid = inside ? k_left - static_cast<i32>(k) : 0;
            if constexpr (Operand::major == Major::k) {
                const u32x4 vector =
                    buffer_load_b128(resource(tile), valid > 0 ? offset : out_of_range);
                chunks[step] =
                    End::cut(vector, End::load(exact_resource(tile), offset, valid), valid);
            } else {
                chunks[step] = gathered(at, exact_resource(tile), offset, valid);
            }
        }
    }

private:
    // Load a row's elements from `offset` on, of which `valid` exist.
    CUPYGEMM_INLINE static u32x4 gathered(const At &at, Resource memory, u32 offset, i32 valid) {
        u32x4 chunk = {0, 0, 0, 0};
#pragma unroll
        for (u32 e = 0; e < elements; ++e) {
            const bool exists = static_cast<i32>(e) < valid;
            add_element(chunk, e, memory, exists ? offset + e * at.k_step : out_of_range);
        }
        return chunk;
    }

    // The same where all of them exist.
    CUPYGEMM_INLINE static u32x4 gathered(const At &at, Resource memory, u32 offset) {
        u32x4 chunk = {0, 0, 0, 0};
#pragma unroll
        for (u32 e = 0; e < elements; ++e)
            add_element(chunk, e, memory, offset + e * at.k_step);
        return chunk;
    }

    CUPYGEMM_INLINE static void add_element(u32x4 &chunk, u32 e, Resource memory, u32 offset) {
        if constexpr (At::element_bytes == 8) {
            const u32x2 words = buffer_load_b64(memory, offset);
            chunk[2 * e] = words.x;
            chunk[2 * e + 1] = words.y;
        } else if constexpr (At::element_bytes == 4) {
            chunk[e] = buffer_load_b32(memory, offset);
        } else if constexpr (At::element_bytes == 2) {
            chunk[e / 2] |= buffer_load_u16(memory, offset) << e % 2 * 16;
        } else {
            chunk[e / 4] |= buffer_load_u8(memory, offset) << e % 4 * 8;
        }
    }
};

} // namespace cupygemm
