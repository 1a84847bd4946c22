// The operands of an epilogue, read through buffer resources.
//
// The window of a source begins at the workgroup's tile and ends with the source's last element, so
// loads beyond it return zero. A run of columns that lies inside the matrix is read by as few loads
// as its bytes require. The run that straddles column n, and sources whose rows do not start at
// dwords, are read element by element.
#pragma once

#include "cdna/buffer.hpp"
#include "common/epilogue.hpp"

namespace cupygemm {

// The position of a workgroup's tile in C, and how much of C remains from there.
struct TileCorner {
    u32 batch0, batch1, batch2;
    u32 row, column;
    i32 rows_left, columns_left;
};

template <class S> struct SourceMemory {
    using Element = typename S::Element;
    using Bits = typename Numeric<Element>::Bits;
    static constexpr bool by_row = S::along == Along::row || S::along == Along::matrix;
    static constexpr bool by_column = S::along == Along::column || S::along == Along::matrix;

    template <int count> using Run = Bits[count];

    Resource memory;
    u32 pitch; // in bytes

    CUPYGEMM_INLINE SourceMemory(const SourceArgs &args, const TileCorner &at) {
        i64 first =
            at.batch0 * args.stride[0] + at.batch1 * args.stride[1] + at.batch2 * args.stride[2];
        i64 last = 0; // relative to the tile's first element
        if constexpr (by_row) {
            first += at.row * args.pitch;
            last += (at.rows_left - 1) * args.pitch;
        }
        if constexpr (by_column) {
            first += at.column;
            last += at.columns_left - 1;
        }
        memory = exact_resource({args.address + first * static_cast<i64>(sizeof(Bits)),
                                 (last + 1) * static_cast<i64>(sizeof(Bits))});
        pitch = static_cast<u32>(args.pitch) * sizeof(Bits);
    }

    template <int count>
    CUPYGEMM_INLINE void load(Bits (&bits)[count], u32 row, u32 column, i32 left) const {
        const u32 offset = (by_row ? row * pitch : 0) + (by_column ? column * sizeof(Bits) : 0);
        if constexpr (count == 1) {
            load_elements(bits, offset, left);
        } else if constexpr (!S::vectors) {
            load_elements(bits, offset, left);
        } else {
            load_vectors(bits, left >= count ? offset : out_of_range);
            if (left > 0 && left < count)
                load_elements(bits, offset, left);
        }
    }

private:
    template <int count> CUPYGEMM_INLINE void load_vectors(Bits (&bits)[count], u32 offset) const {
        constexpr int size = count * sizeof(Bits), dwords = size / 4;
        static_assert(size % 4 == 0, "a run of columns must be whole dwords");
        u32 words[dwords];
#pragma unroll
        for (int i = 0; i < dwords / 4; ++i) {
            const u32x4 four = buffer_load_b128(memory, offset + 16 * i);
            __builtin_memcpy(words + 4 * i, &four, 16);
        }
        if constexpr (dwords % 4 >= 2) {
            const u32x2 two = buffer_load_b64(memory, offset + dwords / 4 * 16);
            __builtin_memcpy(words + dwords / 4 * 4, &two, 8);
        }
        if constexpr (dwords % 2 == 1)
            words[dwords - 1] = buffer_load_b32(memory, offset + (dwords - 1) * 4);
        __builtin_memcpy(bits, words, size);
    }

    template <int count>
    CUPYGEMM_INLINE void load_elements(Bits (&bits)[count], u32 offset, i32 left) const {
#pragma unroll
        for (int e = 0; e < count; ++e)
            bits[e] = load_element(e < left ? offset + e * sizeof(Bits) : out_of_range);
    }

    CUPYGEMM_INLINE Bits load_element(u32 offset) const {
        if constexpr (sizeof(Bits) == 8)
            return __builtin_bit_cast(Bits, buffer_load_b64(memory, offset));
        else if constexpr (sizeof(Bits) == 4)
            return buffer_load_b32(memory, offset);
        else if constexpr (sizeof(Bits) == 2)
            return static_cast<Bits>(buffer_load_u16(memory, offset));
        else
            return static_cast<Bits>(buffer_load_u8(memory, offset));
    }
};

} // namespace cupygemm
