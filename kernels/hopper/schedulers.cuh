// Which scheduler a kernel has, by its Config.
#pragma once

#include "hopper/grouped_scheduler.cuh"

namespace cupygemm {

template <class Config, bool grouped = (Config::group_capacity > 0)> struct ChooseScheduler {
    using Type = Scheduler<Config>;
};
template <class Config> struct ChooseScheduler<Config, true> {
    using Type = GroupedScheduler<Config>;
};
template <class Config> using SchedulerOf = typename ChooseScheduler<Config>::Type;

} // namespace cupygemm
