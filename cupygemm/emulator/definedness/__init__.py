"""Undefined values: tracked from where nothing was written to where they would change a result.

    load of LDS, private or device memory that nothing has written;  register never written
        ─► undefined bits of a register ─► copies, arithmetic, MFMA, LDS and private memory
        ─► address, branch, lane mask, atomic, store to device memory: reported

The policy is that of valgrind's memcheck (Seward and Nethercote, USENIX 2005), with stores to
device memory as the observable effects. Correct kernels may load undefined values and compute with
them (the lanes beyond the end of a scan, the columns of a tile beyond the matrix), as long as no
observable effect depends on them. A copy of undefined device memory is undefined device memory
again, and not a fault.

`marks` stores the undefined bits, one for each bit of a register, and their origins. `vector`,
`scalar` and `matrix` compute the undefined bits of an instruction's result. `uses` is the interface
to the run loop. All of this runs only for an instruction that accesses a register with undefined
bits in some wave.
"""
