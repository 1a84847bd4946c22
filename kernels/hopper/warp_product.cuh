// The product of one slab by the warps of a team, with operands in shared memory in the layout of
// `Slab`.
//
// A warp computes `warp_m` x `warp_n` sums, in registers:
//
//   16-bit operands   ldmatrix, mma.sync m16n8k16 with sums in fp32
//   fp64              loads of single elements, mma.sync m16n8k8
//   fp32              loads of vectors, one fused multiply-add for each product, exact as in IEEE
//
// Without an epilogue, or with sums in groups of four columns, `store` writes C from registers.
// Otherwise, `lines` passes on the sums, 8 rows at a time, for staging in shared memory.
#pragma once

#include "hopper/mma_sync.cuh"
#include "hopper/small_tile.cuh"
#include "hopper/stage_element.cuh"
#include "hopper/store_four.cuh"

namespace cupygemm {

// The part of C that a warp computes: its first row and column, and the extents of the matrix.
struct WarpPlace {
    u32 row, column, m, n;

    template <class Config> CUPYGEMM_INLINE bool has(u32 i, u32 j) const {
        return Config::whole || (i < m && j < n);
    }
};

// Sums as the fragments of mma.sync: lane 4 g + t has columns 2 t and 2 t + 1 of rows g and g + 8.
template <class Config, class Real> struct FragmentSums {
    using T = SmallTile<Config>;
    static constexpr u32 blocks_m = T::warp_m / 16, blocks_n = T::warp_n / 8;
    static constexpr u32 passes = 2 * blocks_m;
    static constexpr bool direct = Config::c_direct;
    using Bits = typename Numeric<typename Config::ElementC>::Bits;
    Real value[blocks_m][blocks_n][4];

    CUPYGEMM_INLINE void clear() {
#pragma unroll
        for (u32 i = 0; i < blocks_m; ++i)
#pragma unroll
            for (u32 j = 0; j < blocks_n; ++j)
#pragma unroll
                for (u32 e = 0; e < 4; ++e)
                    value[i][j][e] = 0;
    }

    // The row of the warp's tile that corresponds to line `line` of a pass.
    CUPYGEMM_INLINE static u32 row(u32 pass, u32 line) { return 8 * pass + line; }

    CUPYGEMM_INLINE void lines(u32 pass, SharedAddress to, u32 lane) const {
#pragma unroll
        for (u32 j = 0; j < blocks_n; ++j) {
            const Real *pair = &value[pass / 2][j][2 * (pass % 2)];
            store_shared_pair<Real>(to + lane / 4 * T::line_bytes +
                                        (8 * j + 2 * (lane % 4)) * sizeof(Real),
                                    pair[0], pair[1]);
        }
    }

    // Round the sums and store them to C, which begins at `c`.
    template <class Epilogue> CUPYGEMM_INLINE void store(Bits *c, i64 pitch, const WarpPlace &at,
                                                         const Epilogue &, u32 lane) const {
        if constexpr (sizeof(Bits) == 2)
            store_vectors(c, pitch, at, lane);
        else if constexpr (sizeof(Bits) >= 4)
            store_pairs(c, pitch, at, lane);
    }

private:
    // The pairs of four lanes are 32 or 64 adjacent bytes.
    CUPYGEMM_INLINE void store_pairs(Bits *c, i64 pitch, const WarpPlace &at, u32 lane) const {
        struct alignas(2 * sizeof(Bits)) Pair {
            Bits bits[2];
        };
        using Out = Numeric<typename Config::ElementC>;
#pragma unroll
        for (u32 pass = 0; pass < passes; ++pass)
#pragma unroll
            for (u32 j = 0; j < blocks_n; ++j) {
                const Real *sums = &value[pass / 2][j][2 * (pass % 2)];
                const u32 row = at.row + 8 * pass + lane / 4;
                const u32 column = at.column + 8 * j + 2 * (lane % 4);
                if (at.has<Config>(row, column))
                    *reinterpret_cast<Pair *>(c + row * pitch + column) =
                        Pair{{Out::round(sums[0]), Out::round(sums[1])}};
            }
    }

    // Four lanes hold rows g and g + 8 of two blocks of columns, in pairs. They exchange them, so
    // that each has the 8 columns of one row and block: 16 bytes, and two lanes have 32 adjacent
    // bytes.
    CUPYGEMM_INLINE void store_vectors(Bits *c, i64 pitch, const WarpPlace &at, u32 lane) const {
        using Out = typename Config::ElementC;
        const bool odd = lane & 1, high = lane & 2;
#pragma unroll
        for (u32 i = 0; i < blocks_m; ++i)
#pragma unroll
            for (u32 j = 0; j < blocks_n; j += 2) {
                u32 half[2][2]; // (row g or g + 8, columns of lanes 0 and 1, or of 2 and 3)
#pragma unroll
                for (u32 below = 0; below < 2; ++below) {
                    const float *left = &value[i][j][2 * below];
                    const float *right = &value[i][j + 1][2 * below];
                    const u32 first = pack<Out>(left[0], left[1]);
                    const u32 second = pack<Out>(right[0], right[1]);
                    const u32 kept = odd ? second : first;
                    const u32 got = __shfl_sync(~0u, odd ? first : second, lane ^ 1);
                    half[below][0] = odd ? got : kept;
                    half[below][1] = odd ? kept : got;
                }
                Vector v;
#pragma unroll
                for (u32 e = 0; e < 2; ++e) {
                    const u32 kept = high ? half[1][e] : half[0][e];
                    const u32 got = __shfl_sync(~0u, high ? half[0][e] : half[1][e], lane ^ 2);
                    v.words[e] = high ? got : kept;
                    v.words[2 + e] = high ? kept : got;
                }
                const u32 row = at.row + 16 * i + 4 * (lane & 2) + lane / 4;
                const u32 column = at.column + 8 * (j + (lane & 1));
                if (at.has<Config>(row, column))
                    store_global_vector(reinterpret_cast<u64>(c + row * pitch + column), v);
            }
    }
};

template <class Config, class Element = typename Config::Element> struct WarpProduct;

// 16-bit floats.
template <class Config> struct HalfProduct : FragmentSums<Config, float> {
    using Sums = FragmentSums<Config, float>;
    using T = SmallTile<Config>;
    using A = typename T::SlabA;
    using B = typename T::SlabB;

    // Add the product of a slab; the warp's tile begins at (m, n).
    CUPYGEMM_INLINE void add(SharedAddress a, SharedAddress b, u32 m, u32 n, u32 lane) {
#pragma unroll
        for (u32 k = 0; k < Config::tile_k; k += 16) {
            u32 of_a[Sums::blocks_m][4], of_b[Sums::blocks_n / 2][4];
            // Matrix q of A is at rows 8 (q % 2) and k 8 (q / 2), and of B at columns 8 (q / 2) and
            // k 8 (q % 2). Lane l has the address of row l % 8 of matrix l / 8.
            const u32 first = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
#pragma unroll
            for (u32 i = 0; i < Sums::blocks_m; ++i) {
                const u32 row = m + 16 * i;
                if constexpr (Config::a_major == Major::k)
                    ldmatrix_x4(of_a[i], a + A::at(row + low + first, k + high));
                else
                    ldmatrix_x4_trans(of_a[i], a + A::at(row + low, k + high + first));
            }
#pragma unroll
            for (u32 j = 0; j < Sums::blocks_n / 2; ++j) {
                const u32 column = n + 16 * j;
                if constexpr (Config::b_major == Major::k)
                    ldmatrix_x4(of_b[j], b + B::at(column + high + first, k + low));
                else
                    ldmatrix_x4_trans(of_b[j], b + B::at(column + high, k + low + first));
            }
#pragma unroll
            for (u32 i = 0; i < Sums::blocks_m; ++i)
#pragma unroll
                for (u32 j = 0; j < Sums::blocks_n; ++j)
                    mma_m16n8k16<typename Config::Element>(this->value[i][j], of_a[i],
                                                           &of_b[j / 2][2 * (j % 2)]);
        }
    }
};

template <class Config> struct WarpProduct<Config, bf16> : HalfProduct<Config> {};
template <class Config> struct WarpProduct<Config, f16> : HalfProduct<Config> {};

template <class Config> struct WarpProduct<Config, f64> : FragmentSums<Config, double> {
    using Sums = FragmentSums<Config, double>;
    using T = SmallTile<Config>;
    using A = typename T::SlabA;
    using B = typename T::SlabB;

    CUPYGEMM_INLINE void add(SharedAddress a, SharedAddress b, u32 m, u32 n, u32 lane) {
        const u32 g = lane / 4, t = lane % 4;
#pragma unroll
        for (u32 k = 0; k < Config::tile_k; k += 8) {
            Fragment of_a[Sums::blocks_m][2], of_b[Sums::blocks_n];
#pragma unroll
            for (u32 i = 0; i < Sums::blocks_m; ++i)
#pragma unroll
                for (u32 half = 0; half < 2; ++half) {
                    const u32 row = m + 16 * i + 8 * half + g;
                    of_a[i][half] = {load_shared_f64(a + A::at(row, k + t)),
                                     load_shared_f64(a + A::at(row, k + t + 4))};
                }
#pragma unroll
            for (u32 j = 0; j < Sums::blocks_n; ++j)
                of_b[j] = {load_shared_f64(b + B::at(n + 8 * j + g, k + t)),
                           load_shared_f64(b + B::at(n + 8 * j + g, k + t + 4))};
#pragma unroll
            for (u32 i = 0; i < Sums::blocks_m; ++i)
#pragma unroll
                for (u32 j = 0; j < Sums::blocks_n; ++j)
                    mma_m16n8k8(this->value[i][j], of_a[i][0], of_a[i][1], of_b[j]);
        }
    }
};

// fp32: a lane computes rows x columns sums. Lane l has row l / lanes_n of each group of rows, or a
// vector of rows if they are adjacent in memory; and vector l % lanes_n of each group of columns,
// or a single column if the elements along k are adjacent.
template <class Config> struct WarpProduct<Config, f32> {
    using T = SmallTile<Config>;
    using A = typename T::SlabA;
    using B = typename T::SlabB;
    static constexpr u32 lanes_n = minimum(T::warp_n / 4, 8u), lanes_m = 32 / lanes_n;
    static constexpr u32 rows = T::warp_m / lanes_m, columns = T::warp_n / lanes_n;
    static constexpr u32 lines_of_lane = 8 / lanes_m;
    static constexpr u32 passes = rows / lines_of_lane;
    static constexpr u32 row_run = Config::a_major == Major::k ? 1 : minimum(rows, 4u);
    static constexpr u32 column_run = Config::b_major == Major::k ? 1 : 4;
    static constexpr bool direct = column_run == 4;
    static_assert(rows % row_run == 0 && columns % column_run == 0,
                  "a lane has whole runs of rows and columns");
    float value[rows][columns];

    CUPYGEMM_INLINE void clear() {
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
#pragma unroll
            for (u32 j = 0; j < columns; ++j)
                value[i][j] = 0;
    }

    CUPYGEMM_INLINE static constexpr u32 row_of(u32 i, u32 lane_m) {
        return (i / row_run * lanes_m + lane_m) * row_run + i % row_run;
    }
    CUPYGEMM_INLINE static constexpr u32 column_of(u32 j, u32 lane_n) {
        return (j / column_run * lanes_n + lane_n) * column_run + j % column_run;
    }
    CUPYGEMM_INLINE static u32 row(u32 pass, u32 line) {
        return row_of(pass * lines_of_lane + line / lanes_m, line % lanes_m);
    }

    CUPYGEMM_INLINE void lines(u32 pass, SharedAddress to, u32 lane) const {
#pragma unroll
        for (u32 line = 0; line < lines_of_lane; ++line)
#pragma unroll
            for (u32 j = 0; j < columns; ++j)
                store_shared_element(to + (line * lanes_m + lane / lanes_n) * T::line_bytes +
                                         column_of(j, lane % lanes_n) * sizeof(float),
                                     value[pass * lines_of_lane + line][j]);
    }

    template <class Bits, class Epilogue> CUPYGEMM_INLINE void
    store(Bits *c, i64 pitch, const WarpPlace &at, const Epilogue &epilogue, u32 lane) const {
#pragma unroll
        for (u32 i = 0; i < rows; ++i)
#pragma unroll
            for (u32 j = 0; j + 3 < columns; j += 4) {
                const u32 row = at.row + row_of(i, lane / lanes_n);
                const u32 column = at.column + column_of(j, lane % lanes_n);
                const float *sums = &value[i][j];
                if (at.has<Config>(row, column))
                    store_four(c + row * pitch + column, Four{{sums[0], sums[1], sums[2], sums[3]}},
                               row, column, Config::whole ? 4 : at.n - column, epilogue);
            }
    }

    CUPYGEMM_INLINE void add(SharedAddress a, SharedAddress b, u32 m, u32 n, u32 lane) {
        constexpr u32 unrolled = rows * columns > 32 ? 2 : Config::tile_k / 4;
#pragma unroll unrolled
        for (u32 k = 0; k < Config::tile_k; k += 4) {
            float of_a[rows][4], of_b[columns][4];
            load<A, rows, row_run>(of_a, a, k,
                                   [&](u32 i) { return m + row_of(i, lane / lanes_n); });
            load<B, columns, column_run>(of_b, b, k,
                                         [&](u32 j) { return n + column_of(j, lane % lanes_n); });
#pragma unroll
            for (u32 e = 0; e < 4; ++e)
#pragma unroll
                for (u32 i = 0; i < rows; ++i)
#pragma unroll
                    for (u32 j = 0; j < columns; ++j)
                        value[i][j] = fma_of(of_a[i][e], of_b[j][e], value[i][j]);
        }
    }

private:
    // Load four k of the lane's rows or columns, which `index` gives.
    template <class Slab, u32 count, u32 run, class Index> CUPYGEMM_INLINE static void
    load(float (&to)[count][4], SharedAddress slab, u32 k, Index &&index) {
        if constexpr (Slab::major == Major::k) {
#pragma unroll
            for (u32 i = 0; i < count; ++i) {
                const Vector v = load_shared_vector(slab + Slab::at(index(i), k));
#pragma unroll
                for (u32 e = 0; e < 4; ++e)
                    to[i][e] = float_of_bits(v.words[e]);
            }
        } else {
#pragma unroll
            for (u32 e = 0; e < 4; ++e)
#pragma unroll
                for (u32 i = 0; i < count; i += run)
                    load_run<run>(&to[i], e, slab + Slab::at(index(i), k + e));
        }
    }

    template <u32 run>
    CUPYGEMM_INLINE static void load_run(float (*to)[4], u32 e, SharedAddress from) {
        if constexpr (run == 4) {
            const Vector v = load_shared_vector(from);
#pragma unroll
            for (u32 i = 0; i < run; ++i)
                to[i][e] = float_of_bits(v.words[i]);
        } else {
#pragma unroll
            for (u32 i = 0; i < run; ++i)
                to[i][e] = float_of_bits(load_shared<u32>(from + 4 * i));
        }
    }
};

} // namespace cupygemm
