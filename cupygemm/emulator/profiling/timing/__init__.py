"""A timing model: the cycles that a launch would take. *Modelled*, never measured.

    emulated waves ─► trace ─► workload ─► native/timing.c (a compute unit) ─► model (the launch)
                      what they executed,    machine: rates and latencies
                      what it cost           operations: the cost of an instruction

docs/explanation/timing_model.rst says what it counts, what it leaves out, and how far it is off.
"""
