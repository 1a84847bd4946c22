// Converts the swaps of an outer panel to moves, for all strips of columns. See moves.hpp.
#include "common/solvers/moves.hpp"
#include "config.hpp"

namespace cupygemm {

struct MovesArgs {
    u64 pivots; // i32, of row `first` on: the row that it is swapped with
    i64 pivot_stride;
    u64 moves; // 2 * max_pivots of each matrix
    i32 first, count;
};
static_assert(sizeof(MovesArgs) == 32, "MovesArgs must match the dtype that the launcher packs");

} // namespace cupygemm

CUPYGEMM_KERNEL(cupygemm::Config::threads) cupygemm_swap_moves(const cupygemm::MovesArgs args) {
    using namespace cupygemm;
    constexpr u32 max_pivots = Config::max_pivots, threads = Config::threads;
    __shared__ u32 pivots[max_pivots];
    const u32 thread = local_thread(), matrix = group_index_y(), count = args.count;
    const i32 *given = reinterpret_cast<const i32 *>(args.pivots) + matrix * args.pivot_stride;
    for (u32 i = thread; i < count; i += threads)
        pivots[i] = given[i];
    workgroup_barrier(); // the pivots are in shared memory
    const u32 at = group_index_x() * threads + thread;
    if (at < 2 * max_pivots)
        reinterpret_cast<Move *>(args.moves)[matrix * (2 * max_pivots) + at] =
            traced_move<max_pivots>(pivots, at, args.first, 0, count, false);
}
