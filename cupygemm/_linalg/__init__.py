"""Linear algebra on top of the matrix product: everything is posed as `cupygemm.matmul` on views.

`contraction` decides on records alone how a pair of arrays with labelled axes becomes one batched
product; `pairs` runs it. The other modules say which axes of which function those are.
"""
