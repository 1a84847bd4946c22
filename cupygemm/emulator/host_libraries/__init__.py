"""Stand-ins for ROCm's mathematical libraries, which compute on the host in the device's memory.

    CuPy ─► hipblasSgemm (C, entry.h) ─► library.py ─► one method of blas.py ─► memory.py, NumPy

`listings/` has the functions that CuPy's ROCm wheel binds. A library is a class whose methods
implement families of them (`library.implements`); a function without a method fails and says so.
Products run on the emulated device, in this package's kernels; the rest is computed by NumPy and
SciPy on the host. Either way each operand is held to the bounds of its array, and memory that was
never written is reported when it is read.
"""
