// libroctracer64.so.4 of the emulated device: starting and stopping a tracer that is not attached
// has no effect, as on a machine where no tracing tool runs.

void roctracer_start(void) {}

void roctracer_stop(void) {}
