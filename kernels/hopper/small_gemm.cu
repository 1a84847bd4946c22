// The GEMM kernel for batches of small matrices on Hopper GPUs.
//
// A *team* of a few warps computes one product, or one tile of it, at a time. A block has several
// teams, which never synchronise. A team copies slabs of A and B to its ring in shared memory, in
// their layout in global memory, and multiplies them by instructions that read registers. There is
// no descriptor, no barrier object and no warp that only loads, because a product ends before these
// would pay off.
//
//   team   copy slabs s .. s+2 | wait s, copy s+3, multiply s | wait s+1, ... | sums to C
//
// cupygemm._backends.hopper.compilation.source generates `config.cuh`, which defines `Config`.
#include "config.cuh"
#include "hopper/dependent_launch.cuh"
#include "hopper/store_four.cuh"
#include "hopper/warp_product.cuh"

namespace cupygemm {

struct SmallArgs {
    u64 a, b, c;
    i64 lda, ldb, ldc;                         // elements
    i64 a_stride[3], b_stride[3], c_stride[3]; // elements, batch0 outermost
    u32 m, n, k;
    u32 batch1, batch2; // extents; batch0 is what remains
    u32 tiles_m, tiles_n;
    u32 units; // tiles of all products
};

static_assert(sizeof(SmallArgs) == 152, "SmallArgs must match the dtype that the launcher packs");

template <bool has_epilogue> struct SmallKernelArgs : SmallArgs {};
template <> struct SmallKernelArgs<true> : SmallArgs {
    EpilogueArgs epilogue;
};

using Tile = SmallTile<Config>;
using Args = SmallKernelArgs<Config::has_epilogue>;

// One tile of one product.
struct Unit {
    u32 batch0, batch1, batch2, row, column;

    CUPYGEMM_INLINE Unit(const Args &args, u32 index) {
        u32 matrix = index;
        row = column = 0;
        if constexpr (!Config::whole) {
            matrix = index / (args.tiles_m * args.tiles_n);
            const u32 tile = index - matrix * args.tiles_m * args.tiles_n;
            row = tile / args.tiles_n * Config::tile_m;
            column = tile % args.tiles_n * Config::tile_n;
        }
        batch0 = batch1 = 0;
        batch2 = matrix;
        if constexpr (Config::several_axes) {
            batch2 = matrix % args.batch2;
            batch1 = matrix / args.batch2 % args.batch1;
            batch0 = matrix / args.batch2 / args.batch1;
        }
    }

    CUPYGEMM_INLINE i64 offset(const i64 (&stride)[3]) const {
        i64 sum = batch2 * stride[2];
        if constexpr (Config::several_axes)
            sum += batch1 * stride[1] + batch0 * stride[0];
        return sum;
    }
};

// The slabs that a team loads, in order: all slabs of a tile, then those of its next tile.
struct Slabs {
    u32 unit, k = 0;

    CUPYGEMM_INLINE void advance(const Args &args, u32 step) {
        k += Config::tile_k;
        if (k >= args.k) {
            k = 0;
            unit += step;
        }
    }
};

CUPYGEMM_INLINE void load_slabs(const Args &args, const Slabs &at, SharedAddress stage,
                                u32 thread) {
    constexpr u32 bytes = Numeric<Config::Element>::bytes;
    if (at.unit < args.units) {
        const Unit unit(args, at.unit);
        i64 a = unit.offset(args.a_stride), b = unit.offset(args.b_stride);
        a += Config::a_major == Major::k ? unit.row * args.lda + at.k : at.k * args.lda + unit.row;
        b += Config::b_major == Major::k ? unit.column * args.ldb + at.k
                                         : at.k * args.ldb + unit.column;
        const i32 k_left = static_cast<i32>(args.k - at.k);
        Tile::SlabA::load<Tile::team_threads>(stage, args.a + a * bytes, args.lda * bytes,
                                              static_cast<i32>(args.m - unit.row), k_left, thread);
        Tile::SlabB::load<Tile::team_threads>(
            stage + Tile::SlabA::bytes, args.b + b * bytes, args.ldb * bytes,
            static_cast<i32>(args.n - unit.column), k_left, thread);
    }
    copy_async_commit(); // even an empty group: the number of groups tells what has landed
}

CUPYGEMM_INLINE Four load_staged(SharedAddress from) {
    Four sums;
    if constexpr (sizeof(PartSum) == 8) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            sums.value[i] = load_shared_f64(from + 8 * i);
    } else {
        const Vector v = load_shared_vector(from);
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            sums.value[i] = float_of_bits(v.words[i]);
    }
    return sums;
}

// Pass a warp's sums through the epilogue to C, 8 rows at a time if they are staged. `staging`
// belongs to the warp.
template <class Product> CUPYGEMM_INLINE void store_sums(const Args &args, const Unit &unit,
                                                         const Product &product, u32 m, u32 n,
                                                         SharedAddress staging, u32 lane) {
    using Bits = typename Numeric<Config::ElementC>::Bits;
    const TileCorner corner{unit.batch0, unit.batch1, unit.batch2, 0, 0};
    const auto epilogue = MakeEpilogue<Config>::make(args, corner);
    Bits *c = reinterpret_cast<Bits *>(args.c) + unit.offset(args.c_stride);
    if constexpr (Product::direct) {
        product.store(c, args.ldc, {unit.row + m, unit.column + n, args.m, args.n}, epilogue, lane);
        return;
    }
    constexpr u32 of_line = Tile::warp_n / 4, count = 8 * of_line / 32;
#pragma unroll
    for (u32 pass = 0; pass < Product::passes; ++pass) {
        product.lines(pass, staging, lane);
        __syncwarp(); // the sums of 8 rows are in shared memory
#pragma unroll
        for (u32 i = 0; i < count; ++i) {
            const u32 index = lane + 32 * i, line = index / of_line;
            const u32 row = unit.row + m + Product::row(pass, line);
            const u32 column = unit.column + n + index % of_line * 4;
            const Four sums = load_staged(staging + line * Tile::line_bytes +
                                          index % of_line * 4 * sizeof(PartSum));
            if (Config::whole || (row < args.m && column < args.n))
                store_four(c + row * args.ldc + column, sums, row, column,
                           Config::whole ? 4 : args.n - column, epilogue);
        }
        __syncwarp(); // they have been read: the next rows may overwrite them
    }
}

} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(cupygemm::Tile::num_threads)
    cupygemm_small_gemm(const __grid_constant__ cupygemm::Args args) {
    using namespace cupygemm;
    extern __shared__ __align__(128) u8 dynamic_shared[];
    constexpr u32 stages = Config::num_stages;
    const u32 team = threadIdx.x / Tile::team_threads, thread = threadIdx.x % Tile::team_threads;
    const u32 warp = thread / 32, lane = thread % 32;
    const u32 m = warp % Config::warps_m * Tile::warp_m, n = warp / Config::warps_m * Tile::warp_n;
    const SharedAddress ring = shared_address(dynamic_shared) + team * Tile::team_bytes;
    const u32 step = gridDim.x * Config::num_teams;
    let_next_kernel_start();

    Slabs ahead{blockIdx.x * Config::num_teams + team};
    Slabs now = ahead;
    wait_for_work_before();
#pragma unroll
    for (u32 s = 0; s + 1 < stages; ++s) {
        load_slabs(args, ahead, ring + s * Tile::stage_bytes, thread);
        ahead.advance(args, step);
    }
    WarpProduct<Config> product;
    product.clear();
    u32 stage = 0;
    while (now.unit < args.units) {
        const SharedAddress a = ring + stage * Tile::stage_bytes;
        if constexpr (stages == 1) {
            load_slabs(args, ahead, a, thread);
            ahead.advance(args, step);
            copy_async_wait<0>();
            team_sync<Config>(team); // the slab has landed
        } else {
            copy_async_wait<stages - 2>();
            // The slab has landed, and all threads have read the previous stage.
            team_sync<Config>(team);
            const u32 before = stage == 0 ? stages - 1 : stage - 1;
            load_slabs(args, ahead, ring + before * Tile::stage_bytes, thread);
            ahead.advance(args, step);
        }
        product.add(a, a + Tile::SlabA::bytes, m, n, lane);
        const u32 unit = now.unit;
        now.advance(args, step);
        if (now.unit != unit) {
            if constexpr (!decltype(product)::direct)
                team_sync<Config>(team); // all threads have read the stage: sums may overwrite it
            store_sums(args, Unit(args, unit), product, m, n, a + warp * 8 * Tile::line_bytes,
                       lane);
            product.clear();
        }
        if constexpr (stages == 1)
            team_sync<Config>(team); // the stage has been read: the next slab may overwrite it
        stage = stage + 1 == stages ? 0 : stage + 1;
    }
}
