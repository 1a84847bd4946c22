// Grouped GEMM: products of matrices of different shapes in one launch.
//
// A table in device memory holds the arguments of every product. A workgroup searches for the
// product that its tile belongs to:
//
//   table        |GemmArgs of product 0|GemmArgs of product 1|  ...
//   first_tile   0                     2                     5        ... total
//   workgroup    |0     |1             |2     |3     |4      |5 ...
//
// The products share types, majors and alignment, which are compile-time constants. Each product is
// a single, non-empty matrix. The XCD remap renumbers the tiles of each product separately.
#include "cdna/gemm.hip"

namespace cupygemm {

// It must match cupygemm._backends.cdna.grouped.GROUPED_ARGS.
struct GroupedArgs {
    u64 table;      // address of num_products GemmArgs
    u64 first_tile; // address of num_products + 1 u32: tiles before each product, then the total
    u32 num_products;
    u32 padding;
};

static_assert(sizeof(GroupedArgs) == 24,
              "GroupedArgs must match the dtype that the launcher packs");
static_assert(Config::partition == Partition::tiles,
              "a workgroup must compute one tile over all of k");
static_assert(
    !Config::has_epilogue,
    "an epilogue reads the kernel's parameter, but a grouped kernel's parameter is the table");

// Uniform reads through the scalar cache. The address space tells the compiler that the tables are
// constant while the kernel runs. Vector loads would leave the arguments in vector registers, but
// buffer resources must be scalar.
template <class T> using ConstantMemory = const __attribute__((address_space(4))) T;

template <class T> CUPYGEMM_INLINE T read_constant(u64 address) {
    static_assert(sizeof(T) % sizeof(u32) == 0, "the struct must be whole dwords");
    T value;
    u32 words[sizeof(T) / sizeof(u32)];
#pragma unroll
    for (u32 i = 0; i < sizeof(T) / sizeof(u32); ++i)
        words[i] = reinterpret_cast<ConstantMemory<u32> *>(address)[i];
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
}

// The last product whose first tile is not beyond the workgroup's tile.
CUPYGEMM_INLINE u32 product_of(const GroupedArgs &args, u32 tile) {
    const auto *first_tile = reinterpret_cast<ConstantMemory<u32> *>(args.first_tile);
    u32 low = 0, high = args.num_products;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (first_tile[middle] <= tile)
            low = middle;
        else
            high = middle;
    }
    return low;
}

} // namespace cupygemm

extern "C" __global__ void
    __attribute__((amdgpu_flat_work_group_size(cupygemm::Config::num_threads,
                                               cupygemm::Config::num_threads)))
    __attribute__((amdgpu_waves_per_eu(cupygemm::Config::waves_per_simd)))
    cupygemm_grouped_gemm(const cupygemm::GroupedArgs groups) {
    using namespace cupygemm;
    __shared__ alignas(256) u8 shared[Mainloop<Config>::lds_bytes]; // laid out by the mainloop

    // The wave index is uniform, which the compiler cannot know: readfirstlane puts it in a scalar
    // register.
    const u32 wave = __builtin_amdgcn_readfirstlane(__builtin_amdgcn_workitem_id_x() / wave_size);
    const u32 workgroup = __builtin_amdgcn_workgroup_id_x();
    const u32 product = product_of(groups, workgroup);
    const u32 first = read_constant<u32>(groups.first_tile + product * sizeof(u32));

    KernelArgs<Config> args;
    static_cast<GemmArgs &>(args) =
        read_constant<GemmArgs>(groups.table + static_cast<u64>(product) * sizeof(GemmArgs));
    const Scheduler<Config> scheduler(args, {workgroup - first, 0, 0});
    compute<false>(args, scheduler, wave, (LdsBase)shared);
}
