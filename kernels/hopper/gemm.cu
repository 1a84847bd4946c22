// The GEMM kernel for Hopper GPUs: C = A B for each matrix of a batch, on a persistent grid.
//
// A block has `num_consumers` consumer warpgroups and one producer warpgroup, in which one thread
// works and which gives most of its registers to the consumers.
// cupygemm._backends.hopper.compilation.source generates `config.cuh`, which defines `Config`.
// Requires sm_90a.
#include "config.cuh"
#include "hopper/dependent_launch.cuh"
#include "hopper/fix_up.cuh"
#include "hopper/part_exchange.cuh"
#include "hopper/schedulers.cuh"
#include "hopper/store.cuh"
#include "hopper/turns.cuh"

namespace cupygemm {

using Shape = Tile<Config>;
using Mainloop = WarpSpecializedMainloop<Config>;
using Exchange = PartExchange<Config>;

// Registers per thread. The producer gives registers to the consumers, except to a single consumer:
// two warpgroups have 255 each from the start. The producer keeps more if it shares both operands
// with other blocks, if it copies scales, or if the consumers' code would otherwise make it spill.
constexpr bool moves_registers = Config::num_consumers > 1;
constexpr bool busy_producer = Config::mma_sync || Config::block_scaled || Shape::a_in_registers ||
                               (Config::cluster_m > 1 && Config::cluster_n > 1);
constexpr int producer_registers = busy_producer ? 56 : 40;
constexpr int consumer_registers = Config::num_consumers == 3 ? 152 : busy_producer ? 224 : 232;
constexpr int launch_registers = 65536 / Shape::num_threads / 8 * 8; // per thread, at most
static_assert(!moves_registers ||
                  producer_registers + Config::num_consumers * consumer_registers <=
                      static_cast<int>(Shape::num_threads / warpgroup_size) * launch_registers,
              "registers move within the block: a warpgroup that asks for more than the others "
              "give up would wait forever");

// The producer's thread initialises the barriers and may use them immediately; the consumers, and
// the warps that copy scales or mark SMs, wait until it has done so. In a cluster, all blocks wait
// for each other, because they use each other's barriers and shared memory.
template <class Args>
CUPYGEMM_INLINE void prologue(const Args &args, SharedAddress shared, bool producer, u32 thread) {
    if (producer && thread == 0) {
        for (u32 stage = 0; stage < Config::num_stages; ++stage) {
            mbarrier_init(Shape::full(shared, stage), Shape::num_fillers);
            mbarrier_init(Shape::empty(shared, stage), Shape::num_releases);
        }
        if constexpr (Config::block_scaled)
            mbarrier_init_passed(Shape::passed(shared));
        if constexpr (Config::by_sm)
            SmScheduler<Config>::prepare(shared);
        fence_mbarrier_init();
        tma_prefetch_map(args.a);
        tma_prefetch_map(args.b);
        if constexpr (Config::tma_store)
            tma_prefetch_map(args.c);
        if constexpr (Shape::b_rest != 0)
            tma_prefetch_map(args.narrow_b);
    }
    __syncwarp();
    if constexpr (Shape::cluster_size > 1)
        cluster_sync();
    else if (producer && (Config::by_sm ? thread < 96 : !Config::block_scaled || thread < 32))
        block_arrive(Shape::num_threads);
    else
        block_sync(Shape::num_threads);
}

// One thread fills the stages of the ring with the operands of each work item.
template <class Args, class Scheduler> CUPYGEMM_INLINE void
produce_operands(const Args &args, Scheduler &scheduler, u32 rank, SharedAddress shared) {
    Mainloop::Ring ring;
    begin_on_sm(scheduler, args, shared);
    for (; scheduler.more(); scheduler.advance(args)) {
        const auto &product = scheduler.product(args);
        const Work work = scheduler.work(product, rank);
        wait_for_work_before(work.row | work.column); // waits only the first time
        Mainloop::produce(product, work, rank, shared, ring);
    }
}

// Two warps of the producer fill the same stages with the scales of their blocks.
template <class Args, class Scheduler>
CUPYGEMM_INLINE void produce_scales(const Args &args, Scheduler &scheduler, u32 rank, u32 warp,
                                    u32 lane, SharedAddress shared) {
    Mainloop::Ring ring;
    for (; scheduler.more(); scheduler.advance(args)) {
        const auto &product = scheduler.product(args);
        const Work work = scheduler.work(product, rank);
        wait_for_work_before(work.row | work.column);
        BlockScales<Config>::produce(product, work, warp, lane, shared, ring);
    }
}

// A consumer warpgroup multiplies what the stages hold, and stores its rows of each tile.
template <class Args, class Scheduler>
CUPYGEMM_INLINE void consume(const Args &args, Scheduler &scheduler, u32 rank, u32 warpgroup,
                             u32 thread, SharedAddress shared) {
    using Output = TileStore<Exchange::Kept>;
    using Epilogue = Output::Epilogue;
    const SharedAddress staging =
        shared + Shape::staging_at + warpgroup * Config::epilogue_buffers * block_bytes;
    Mainloop::Ring ring;
    wait_for_work_before();
    begin_on_sm(scheduler, args, shared);
    FixUp<Config>::leave_first(args, scheduler, rank, warpgroup, thread, shared, ring);
    Accumulators<Config> acc;
    Output output{1 + warpgroup};
    Turns<Config> turns(warpgroup);
    for (; scheduler.more(); scheduler.advance(args)) {
        const auto &product = scheduler.product(args);
        const Work work = scheduler.work(product, rank);
        if (!turns.takes(ring, work.end - work.begin))
            continue;
        const u32 consumer = turns.consumer;
        const Work kept = Exchange::kept(work);
        Epilogue::prefetch(product, kept, consumer, thread);
        turns.begin();
        Epilogue epilogue =
            Mainloop::consume(product, work, consumer, thread, shared, ring, acc, [&] {
                turns.let_other_begin(scheduler, args);
                return Epilogue(product, kept, consumer, thread);
            });
        FixUp<Config>::collect(product, work, consumer, thread, acc);
        auto &&sums = Exchange::sums(rank, consumer, thread, shared, acc);
        output.store(product, kept, consumer, thread, staging, sums, epilogue);
    }
    output.drain(thread);
}

} // namespace cupygemm

extern "C" __global__ void __cluster_dims__(cupygemm::Shape::cluster_size, 1, 1)
    __launch_bounds__(cupygemm::Shape::num_threads, 1)
        cupygemm_gemm(const __grid_constant__ cupygemm::Parameter<cupygemm::Config> args) {
    using namespace cupygemm;
    // ((stage, A then B), epilogue staging, barriers); see tile.cuh
    extern __shared__ __align__(1024) u8 dynamic_shared[];
    const SharedAddress shared = shared_address(dynamic_shared);
    // Broadcast from lane 0, so that the compiler knows the value to be uniform: roles do not
    // diverge, and descriptors, barriers and coordinates stay in uniform registers.
    const u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const u32 warpgroup = warp / 4, thread = threadIdx.x % warpgroup_size;
    const u32 rank = Shape::cluster_size > 1 ? cluster_rank() : 0;

    const bool producer = warpgroup == Config::num_consumers;
    prologue(SchedulerOf<Config>::first_product(args), shared, producer, thread);
    if constexpr (!Config::by_sm)
        let_next_kernel_start();

    if constexpr (Config::row_groups)
        wait_for_work_before(); // the scheduler reads the groups' numbers of rows
    SchedulerOf<Config> scheduler(args);
    if (producer) {
        if constexpr (moves_registers)
            setmaxnreg_dec<producer_registers>();
        const u32 role = warp % 4, lane = thread % 32;
        if (role == 3)
            mark_sm(scheduler, args, shared, lane);
        if (role == 0 && elect_one())
            produce_operands(args, scheduler, rank, shared);
        if (Config::block_scaled && (role == 1 || role == 2))
            produce_scales(args, scheduler, rank, role, lane, shared);
        Exchange::pass();
    } else {
        if constexpr (moves_registers)
            setmaxnreg_inc<consumer_registers>();
        consume(args, scheduler, rank, warpgroup, thread, shared);
    }
    if constexpr (Shape::cluster_size > 1) {
        __syncwarp();   // the thread that worked alone rejoins its warp
        cluster_sync(); // no block ends while another may still access its shared memory
    }
}
