"""Compare linear layers of public models with other libraries: ``python -m benchmarks.models``.

`layers` lists the models and their layers, `rotation` holds the operands, `peers` and `cublaslt`
are the other contenders, `measure` takes the times, and `report` and `chart` summarise them.
"""
