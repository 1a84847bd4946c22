"""Time the linear layers of public models beside other libraries: ``python -m benchmarks.models``.

`layers` names the models and their layers, `rotation` holds the operands, `peers` and `cublaslt`
are who else multiplies, `measure` takes the times, `report` and `chart` say what they mean.
"""
