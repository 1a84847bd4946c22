"""Stand-ins for ROCm's mathematical libraries, which compute on the host in device memory.

    CuPy ─► hipblasSgemm (C, entry.h) ─► library.py ─► one method of blas.py ─► memory.py, NumPy

`listings/` has the functions that CuPy's ROCm wheel binds. A library is a class whose methods
implement families of them (`library.implements`); a function without a method fails with a message.
Products run on the emulated device, in this package's kernels; NumPy and SciPy compute the rest on
the host. In both cases, accesses outside an operand's array and reads of memory that was never
written are reported.
"""
