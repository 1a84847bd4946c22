"""The backend for NVIDIA Hopper: CUDA kernels with wgmma and TMA.

A call passes through these modules and packages::

    backend       a request → a plan: one of the choices below, compiled and ready to be launched
    requests      which types and arrays the kernels take
    plan          a layout → the kernels of one product, with the copies of operands they need
    operands      the copies, and how TMA sees the operands
    choice        which configuration computes it (config), by its modelled time (cost)
    compilation   its text → a cubin
    product       the launches of one product (launch), with their workspaces
    cuda          what CuPy does not bind of the driver

Some products have a separate choice: batches of small matrices (`small`), and groups, scales along
k and symmetric products (`other_products`).
"""
