// Programmatic dependent launch: a kernel starts while the previous work of its stream is ending.
//
//   this kernel       launch, barriers, maps | wait ............ | reads and writes memory
//   the one before    ... last tiles ........................ end |
//
// cupygemm._backends.hopper.cuda.enqueue allows the overlap at launch. These two instructions make
// it safe and useful. In a launch that does not allow it, a kernel starts only when the previous
// work has ended, and neither instruction has an effect. Source: PTX ISA 9.0, "griddepcontrol".
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Wait until the previous work has ended and its writes are visible. A thread must call this before
// it reads or writes global memory, directly or through the copy engine: memory that it would
// overwrite may still be read.
CUPYGEMM_INLINE void wait_for_work_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The same, after `known` has been computed. Without the dependency, the compiler would postpone
// work that can precede the wait until after it. The wait seems conditional on known << 1 not being
// -1; it always happens, because -1 is odd, but the compiler does not see that.
CUPYGEMM_INLINE void wait_for_work_before(u32 known) {
    asm volatile("{\n"
                 ".reg .pred is_known;\n"
                 "setp.ne.b32 is_known, %0, -1;\n"
                 "@is_known griddepcontrol.wait;\n"
                 "}" ::"r"(known << 1)
                 : "memory");
}

// Allow the next kernel of the stream to start on SMs that this kernel's blocks vacate, once every
// block has called this or ended. The next kernel itself waits for the end of this one, so no call
// is too early.
CUPYGEMM_INLINE void let_next_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

} // namespace cupygemm
