// The two kernels of a product that splits tiles between workgroups: the GEMM, and the reduction
// that adds the partial sums in the workspace, applies the epilogue and rounds once.
//
// A workgroup of cupygemm_add_parts reduces one group of quads of one wave of the GEMM: in each of
// 64 lanes, the sums that the lane would store together. Wave w of its four waves adds parts w,
// w + 4, ... in the order of k; then the sums of the four waves are added in order. The result is
// bitwise reproducible.
//
// Where the GEMM adds its sums directly to C (Config::adds_to_result) there are no parts. This
// kernel then runs before the GEMM, and stores zeros to C.
#include "cdna/gemm.hip"
#include "common/addition.hpp"

namespace cupygemm {

constexpr u32 add_waves = 4;
constexpr u32 parts_at_once = 4; // per wave: their loads are in flight together

template <class Scalar, int quads>
CUPYGEMM_INLINE void add(Scalar (&sums)[quads][4], const Scalar (&other)[quads][4]) {
#pragma unroll
    for (int i = 0; i < quads; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            sums[i][e] = added(sums[i][e], other[i][e]);
}

// The tile that a workgroup reduces, and the slots of its parts.
struct PartedTile {
    Work work;
    Slots slots;
};

template <class Config> CUPYGEMM_INLINE PartedTile parted_tile(const KernelArgs<Config> &args,
                                                               const Tiling<Config> &tiling,
                                                               u32 index, u32 batch) {
    using Schedule = Scheduler<Config>;
    if constexpr (Config::partition == Partition::split_k) {
        return {{batch, index, 0, tiling.steps, 0, true},
                Schedule::slots(args, tiling, batch, index)};
    } else {
        const u32 tile = Schedule::whole_tiles(args) + index;
        return {{tile / tiling.tiles, tile % tiling.tiles, 0, tiling.steps, 0, true},
                Schedule::slots(args, tiling, index)};
    }
}

} // namespace cupygemm

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(cupygemm::add_waves * cupygemm::wave_size,
                                               cupygemm::add_waves *cupygemm::wave_size)))
    cupygemm_add_parts(const cupygemm::KernelArgs<cupygemm::Config> args) {
    using namespace cupygemm;
    using Acc = Accumulators<Config>;
    using Store = TileStore<Config, Epilogue>;
    using Sums = typename Acc::Scalar[Store::group_quads][4];
    constexpr u32 groups_of_wave = Acc::fragments_m * Store::num_groups;
    constexpr u32 groups_of_tile = Config::waves_m * Config::waves_n * groups_of_wave;
    __shared__ Sums others[add_waves - 1][wave_size]; // (wave 1 .. 3, lane, quad, sum)

    const u32 thread = __builtin_amdgcn_workitem_id_x();
    const u32 add_wave = __builtin_amdgcn_readfirstlane(thread / wave_size);
    const u32 lane = thread % wave_size;
    const u32 index = __builtin_amdgcn_workgroup_id_x() / groups_of_tile;
    const u32 in_tile = __builtin_amdgcn_workgroup_id_x() % groups_of_tile;
    const u32 wave = in_tile / groups_of_wave; // wave of the GEMM
    const u32 fm = in_tile % groups_of_wave / Store::num_groups;
    const u32 group = in_tile % Store::num_groups;

    const Tiling<Config> tiling(args);
    const u32 batch =
        batch_of({0, __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()});
    if (batch >= tiling.batches)
        return;
    const PartedTile tile = parted_tile(args, tiling, index, batch);
    if (Config::partition == Partition::stream_k && tile.slots.count == 1)
        return; // one workgroup computed the whole tile and stored it
    const Position at = position(args, tile.work, wave, lane);
    const Store store(args, at, MakeEpilogue<Config>::make(args, at, tile.work));

    Sums sums{};
    for (u32 first = add_wave; first < tile.slots.count; first += parts_at_once * add_waves) {
        Sums parts[parts_at_once]; // zeros for parts that do not exist
#pragma unroll
        for (u32 p = 0; p < parts_at_once; ++p) {
            const u32 part = first + p * add_waves;
            const PartSlot<Config> slot(args.workspace, tile.slots(part), wave, lane);
#pragma unroll
            for (int i = 0; i < Store::group_quads; ++i) {
                const u32 quad = Store::quad_of(group, i);
                slot.load(parts[p][i], fm, quad,
                          part < tile.slots.count && store.place.inside(fm, quad));
            }
        }
#pragma unroll
        for (u32 p = 0; p < parts_at_once; ++p)
            add(sums, parts[p]);
    }
    if (add_wave > 0)
        __builtin_memcpy(&others[add_wave - 1][lane], &sums, sizeof(sums));
    lds_barrier(); // the sums of waves 1 to 3 are in LDS
    if (add_wave > 0)
        return;
#pragma unroll
    for (u32 other = 0; other < add_waves - 1; ++other)
        add(sums, others[other][lane]);
    store.store_group(fm, group, sums);
}
