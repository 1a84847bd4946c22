// Selects the kernel's scheduler from its Config.
#pragma once

#include "hopper/grouped_scheduler.cuh"
#include "hopper/stream_scheduler.cuh"
#include "hopper/triangle_scheduler.cuh"

namespace cupygemm {

template <class Config, bool grouped = (Config::group_capacity > 0),
          bool triangle = Config::lower_triangle, bool stream = Config::stream_k>
struct ChooseScheduler {
    using Type = Scheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, true, false, false> {
    using Type = GroupedScheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, false, true, false> {
    using Type = TriangleScheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, false, false, true> {
    using Type = StreamScheduler<Config>;
};
template <class Config> using SchedulerOf = typename ChooseScheduler<Config>::Type;

} // namespace cupygemm
