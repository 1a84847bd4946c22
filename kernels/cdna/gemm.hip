// The GEMM kernel for CDNA GPUs: C = A B for each matrix of a batch.
//
// A workgroup computes tiles of C, or parts of them, as its Scheduler assigns them (scheduler.hpp).
// Each tile runs the mainloop, which sums in registers, and then the epilogue, which stores C or a
// partial sum. cupygemm._backends.cdna.config.grid gives the grid. cupygemm._backends.cdna.source
// generates `config.hpp`, which includes the mainloop and defines `Config`.
#include "cdna/parts.hpp"
#include "cdna/registers.hpp"
#include "cdna/scheduler.hpp"
#include "cdna/sources.hpp"
#include "cdna/store.hpp"
#include "cdna/waitcnt.hpp"
#include "config.hpp"

namespace cupygemm {

static_assert(Config::tile_m % Config::waves_m == 0 && Config::tile_n % Config::waves_n == 0,
              "the waves must divide the tile");
static_assert(Config::num_threads == wave_size * Config::waves_m * Config::waves_n,
              "a workgroup must have waves_m * waves_n waves");
static_assert(Numeric<Config::ElementA>::bytes == Numeric<Config::ElementB>::bytes,
              "A and B must have one type, or be two formats of 8-bit floats");
static_assert(!Config::adds_to_result || (Config::atomic_parts && !Config::has_epilogue),
              "parts can be added to C only atomically and without an epilogue");
static_assert(!Config::atomic_parts || Config::partition == Partition::split_k,
              "only equal parts of k can be added atomically");

struct BatchOffsets {
    i64 a, b, c; // elements
};

struct BatchIndex {
    u32 axis0, axis1, axis2;
};

CUPYGEMM_INLINE BatchIndex batch_index(const GemmArgs &args, u32 batch) {
    const u32 outer = batch / args.batch2;
    return {outer / args.batch1, outer % args.batch1, batch % args.batch2};
}

CUPYGEMM_INLINE i64 batch_offset(const i64 (&stride)[3], BatchIndex at) {
    return at.axis0 * stride[0] + at.axis1 * stride[1] + at.axis2 * stride[2];
}

CUPYGEMM_INLINE BatchOffsets batch_offsets(const GemmArgs &args, u32 batch) {
    const BatchIndex at = batch_index(args, batch);
    return {batch_offset(args.a_stride, at), batch_offset(args.b_stride, at),
            batch_offset(args.c_stride, at)};
}

// The position of a wave in the problem while its workgroup does a piece of work.
CUPYGEMM_INLINE Position position(const GemmArgs &args, const Work &work, u32 wave, u32 lane) {
    // Batch entry 0 needs no divisions; single matrices, the most common case, are always entry 0.
    const BatchOffsets offset =
        work.batch == 0 ? BatchOffsets{0, 0, 0} : batch_offsets(args, work.batch);
    const TileIndex tile = Tiling<Config>(args).place(work.tile);
    Position at;
    at.a = args.a + offset.a * Numeric<Config::ElementA>::bytes;
    at.b = args.b + offset.b * Numeric<Config::ElementB>::bytes;
    at.c = args.c + offset.c * Numeric<Config::ElementC>::bytes;
    at.row = tile.m * Config::tile_m;
    at.column = tile.n * Config::tile_n;
    at.k = {static_cast<i32>(work.begin * Config::tile_k),
            static_cast<i32>(minimum<u32>(work.end * Config::tile_k, args.k))};
    at.wave_m = wave / Config::waves_n;
    at.wave_n = wave % Config::waves_n;
    at.lane = lane;
    at.thread = wave * wave_size + lane;
    return at;
}

// The epilogue that the Config selects: rounding alone, or the fused formula.
template <class Config, bool fused = Config::has_epilogue> struct MakeEpilogue {
    using Type = CastEpilogue<typename Config::ElementC>;

    CUPYGEMM_INLINE static Type make(const KernelArgs<Config> &, const Position &, const Work &) {
        return {};
    }
};

template <class Config> struct MakeEpilogue<Config, true> {
    using Memories = SourceMemories<typename Config::Parts>;
    using Type = FusedEpilogue<typename Config::Parts, typename Config::ElementC,
                               typename Accumulators<Config>::Scalar, Memories>;

    CUPYGEMM_INLINE static Type make(const KernelArgs<Config> &args, const Position &at,
                                     const Work &work) {
        const BatchIndex batch = batch_index(args, work.batch);
        TileCorner corner;
        corner.batch0 = batch.axis0;
        corner.batch1 = batch.axis1;
        corner.batch2 = batch.axis2;
        corner.row = at.row;
        corner.column = at.column;
        corner.rows_left = args.m - static_cast<i32>(at.row);
        corner.columns_left = args.n - static_cast<i32>(at.column);
        return Type(args.epilogue, Memories(args.epilogue, corner));
    }
};

using Epilogue = typename MakeEpilogue<Config>::Type;

// Store the workgroup's sums: to C if they cover all of k; otherwise to a slot of the workspace, or
// by atomic addition to C.
template <class Config> CUPYGEMM_INLINE void store_sums(const KernelArgs<Config> &args,
                                                        const Position &at, const Work &work,
                                                        const Accumulators<Config> &acc) {
    if constexpr (Config::partition != Partition::tiles) {
        if constexpr (Config::adds_to_result) {
            add_to_result(args, TilePlace<Config>(args, at), acc);
        } else if (!work.all_of_k) {
            const PartSlot<Config> slot(args.workspace, work.slot,
                                        at.wave_m * Config::waves_n + at.wave_n, at.lane);
            slot.store_all(acc, TilePlace<Config>(args, at));
            return;
        }
    }
    if constexpr (Config::partition != Partition::split_k)
        TileStore<Config, Epilogue>(args, at, MakeEpilogue<Config>::make(args, at, work))
            .store(acc);
}

// Return the kernel's arguments. Between the mainloop and the epilogue, and between the tiles of a
// persistent kernel, they are read again, and the work and its position are computed again: if they
// were kept, they would occupy scalar registers that the mainloop needs, especially if rows start
// in the middle of a dword. A grouped kernel reads its arguments from its table and keeps them.
template <bool is_parameter>
CUPYGEMM_INLINE const KernelArgs<Config> &arguments(const KernelArgs<Config> &args) {
    constexpr bool whole_dwords = Config::a_dword_aligned && Config::b_dword_aligned;
    constexpr bool again = is_parameter && (Config::partition == Partition::stream_k ||
                                            Config::has_epilogue || !whole_dwords);
    return again ? reread_arguments<KernelArgs<Config>>() : args;
}

CUPYGEMM_INLINE void multiply(const KernelArgs<Config> &args, const Scheduler<Config> &scheduler,
                              u32 wave, LdsBase shared, Accumulators<Config> &acc) {
    const u32 lane = settled_here(__builtin_amdgcn_workitem_id_x()) % wave_size;
    const Position at = position(args, scheduler.work(args), wave, lane);
    Mainloop<Config>(args, at, shared).run(acc);
}

CUPYGEMM_INLINE void store(const KernelArgs<Config> &args, const Scheduler<Config> &scheduler,
                           u32 wave, const Accumulators<Config> &acc) {
    const u32 lane = settled_here(__builtin_amdgcn_workitem_id_x()) % wave_size;
    const Work work = scheduler.work(args);
    store_sums(args, position(args, work, wave, lane), work, acc);
}

template <bool is_parameter = true> CUPYGEMM_INLINE void compute(const KernelArgs<Config> &args,
                                                                 const Scheduler<Config> &scheduler,
                                                                 u32 wave, LdsBase shared) {
    Accumulators<Config> acc; // (fragment m, fragment n)
    multiply(arguments<is_parameter>(args), scheduler, wave, shared, acc);
    store(arguments<is_parameter>(args), scheduler, wave, acc);
}

} // namespace cupygemm

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(cupygemm::Config::num_threads,
                                               cupygemm::Config::num_threads)))
    __attribute__((amdgpu_waves_per_eu(cupygemm::Config::waves_per_simd)))
    cupygemm_gemm(const cupygemm::KernelArgs<cupygemm::Config> args) {
    using namespace cupygemm;
    __shared__ alignas(256) u8 shared[Mainloop<Config>::lds_bytes]; // laid out by the mainloop

    // The wave index is uniform, which the compiler cannot know: readfirstlane puts it in a scalar
    // register.
    const u32 wave = __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() / wave_size);

    Scheduler<Config> scheduler(args, {__builtin_amdgcn_workgroup_id_x(),
                                       __builtin_amdgcn_workgroup_id_y(),
                                       __builtin_amdgcn_workgroup_id_z()});
    if constexpr (Config::partition != Partition::stream_k) {
        if (scheduler.more())
            compute(args, scheduler, wave, (LdsBase)shared);
    } else {
        while (scheduler.more()) {
            compute(args, scheduler, wave, (LdsBase)shared);
            scheduler.advance(arguments<true>(args));
            lds_barrier(); // every wave has read the last tile, so the next may overwrite it
        }
    }
}
