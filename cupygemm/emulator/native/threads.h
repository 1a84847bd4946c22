/* Share work among the processor's cores.
 *
 * `share(work, context, parts)` calls work(context, part) once for each part. The calling thread
 * takes parts, too, so a call never waits for a helper that the system does not run. A call
 * made while another thread uses the helpers executes all parts itself. */
#ifndef CUPYGEMM_THREADS_H
#define CUPYGEMM_THREADS_H

#include <stdint.h>

void share(void (*work)(void *context, int64_t part), void *context, int64_t parts);
int64_t num_threads(void);

/* Wait for a moment, in a loop that polls another core's progress. */
static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
