// Programmatic dependent launch: a kernel may start while the work before it in the stream ends.
//
//   this kernel       launch, barriers, maps | wait ............ | reads and writes memory
//   the one before    ... last tiles ........................ end |
//
// The launch allows it (cupygemm._backends.hopper.enqueue); these two instructions make it safe and useful.
// Launched without leave, a kernel starts when the work before it has ended, and neither does
// anything. Source: PTX ISA 9.0, "griddepcontrol".
#pragma once

#include "common/platform.hpp"

namespace cupygemm {

// Wait until the work before this kernel has ended and what it wrote can be seen. A thread must
// come here before it reads or writes global memory, or has the copy engine do so: what it would
// overwrite may still be read, too.
CUPYGEMM_INLINE void wait_for_work_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The same once `known` has been computed. Else the compiler would leave for after the wait what
// can be done before it. To it, the wait is not for -1, which is odd; it does not see that none is.
CUPYGEMM_INLINE void wait_for_work_before(u32 known) {
    asm volatile("{\n"
                 ".reg .pred is_known;\n"
                 "setp.ne.b32 is_known, %0, -1;\n"
                 "@is_known griddepcontrol.wait;\n"
                 "}" ::"r"(known << 1)
                 : "memory");
}

// Once all blocks came here or ended, the next kernel of the stream may take the room that blocks
// of this one leave. It waits for the end of this kernel itself, so no time is too early.
CUPYGEMM_INLINE void let_next_kernel_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

} // namespace cupygemm
