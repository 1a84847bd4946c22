// The execution of a cluster's threads.
#pragma once

#include "machine.hpp"

namespace hopper_model {

extern char error_text[4096]; // of the last run that failed

void begin_schedule(u64 seed);
Thread &add_thread(); // its address holds until the next is added
bool run_threads(void (*entry)());
void go_on(); // after an instruction: whoever comes first may run

} // namespace hopper_model
