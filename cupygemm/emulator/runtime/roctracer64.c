// libroctracer64.so.4 of the emulated device: starting and stopping a tracer has no effect, as on a
// machine without a tracing tool.

void roctracer_start(void) {}

void roctracer_stop(void) {}
