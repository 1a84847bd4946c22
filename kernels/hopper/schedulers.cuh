// Selects the kernel's scheduler from its Config.
#pragma once

#include "hopper/grouped_scheduler.cuh"
#include "hopper/row_group_scheduler.cuh"
#include "hopper/sm_scheduler.cuh"
#include "hopper/stream_scheduler.cuh"
#include "hopper/triangle_scheduler.cuh"

namespace cupygemm {

template <class Config, bool grouped = (Config::group_capacity > 0),
          bool triangle = Config::lower_triangle, bool stream = Config::stream_k,
          bool row_groups = Config::row_groups, bool by_sm = Config::by_sm>
struct ChooseScheduler {
    using Type = Scheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, true, false, false, false, false> {
    using Type = GroupedScheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, false, true, false, false, false> {
    using Type = TriangleScheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, false, false, true, false, false> {
    using Type = StreamScheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, false, false, false, true, false> {
    using Type = RowGroupScheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, false, false, false, false, true> {
    using Type = SmScheduler<Config>;
};
template <class Config> using SchedulerOf = typename ChooseScheduler<Config>::Type;

} // namespace cupygemm
