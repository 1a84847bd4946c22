// The scheduler of several products in one launch: their units follow one another.
//
// The parameter holds each product's arguments and the number of units of all products before it. A
// cluster takes units i, i + clusters, ... of the whole sequence, and looks up the product to which
// each belongs.
//
//   first_unit   0           3   5         9  9 (the total, repeated up to the capacity)
//   unit         |0   1   2 |3  4 |5 6 7 8|
#pragma once

#include "hopper/scheduler.cuh"

namespace cupygemm {

template <class Config> struct GroupedScheduler {
    static constexpr u32 capacity = Config::group_capacity;
    static_assert((capacity & (capacity + 1)) == 0,
                  "the binary search needs a capacity of one less than a power of two");
    static_assert(!Config::split_k && !Config::has_epilogue && Config::operand_rank == 3,
                  "the products of a group must be single matrices, each summed over all of k");

    u32 unit, stride, units;
    u32 index; // of the product
    Scheduler<Config> within;

    CUPYGEMM_INLINE explicit GroupedScheduler(const GroupedArgs<capacity> &args)
        : unit(cluster_index()), stride(cluster_count()), units(args.first_unit[capacity]),
          index(find(args, unit)), within(enter(args)) {}

    CUPYGEMM_INLINE bool more() const { return unit < units; }

    CUPYGEMM_INLINE void advance(const GroupedArgs<capacity> &args) {
        unit += stride;
        within.unit += stride;
        if (within.more() || !more())
            return;
        index = find(args, unit);
        within = enter(args);
    }

    CUPYGEMM_INLINE const KernelArgs<false> &product(const GroupedArgs<capacity> &args) const {
        return args.products[index];
    }
    CUPYGEMM_INLINE static const KernelArgs<false> &
    first_product(const GroupedArgs<capacity> &args) {
        return args.products[find(args, cluster_index())];
    }

    CUPYGEMM_INLINE Work work(const HopperArgs &product, u32 rank) const {
        return within.work(product, rank);
    }

private:
    // The last product whose first unit is not beyond `unit`.
    CUPYGEMM_INLINE static u32 find(const GroupedArgs<capacity> &args, u32 unit) {
        u32 found = 0;
#pragma unroll
        for (u32 step = (capacity + 1) / 2; step > 0; step /= 2)
            if (args.first_unit[found + step] <= unit)
                found += step;
        return found;
    }

    CUPYGEMM_INLINE Scheduler<Config> enter(const GroupedArgs<capacity> &args) const {
        return Scheduler<Config>(args.products[index], unit - args.first_unit[index], stride);
    }
};

} // namespace cupygemm
