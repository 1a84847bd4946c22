"""A timing model of the cycles that a launch takes. *Modelled*, never measured.

    emulated waves ─► trace ─► workload ─► native/timing.c (a compute unit) ─► model (the launch)
                      (instructions          machine: rates and latencies
                      and costs)             operations: the cost of an instruction

docs/explanation/timing_model.rst describes what the model includes, what it omits, and its errors.
"""
