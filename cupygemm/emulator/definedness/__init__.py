"""Undefined values: followed from where nothing was written to where they would change a result.

    load of LDS, private or device memory that nothing has written;  register never written
        ─► undefined bits of a register ─► copies, arithmetic, MFMA, LDS and private memory
        ─► address, branch, lane mask, atomic, store to device memory: reported

It is the policy of valgrind's memcheck (Seward and Nethercote, USENIX 2005) with a store to device
memory as what the world sees: correct kernels load and compute what they do not use (the lanes
beyond the end of a scan, the columns of a tile beyond the matrix) but do not let it decide. A copy
of undefined device memory stays undefined device memory, and is no fault.

`marks` keeps the undefined bits, one for each bit, and where they came from; `vector`, `scalar` and
`matrix` say what an instruction makes of them; `uses` is what the run loop calls. All of it runs
only for an instruction that touches a register with undefined bits in some wave.
"""
