"""Triton kernels in the manner of Triton's tutorials: products, attention, reductions, a lock."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    a_row,
    a_column,
    b_row,
    b_column,
    tile_m: tl.constexpr,
    tile_n: tl.constexpr,
    tile_k: tl.constexpr,
    precision: tl.constexpr,
    accumulate: tl.constexpr,
):
    tiles_n = tl.cdiv(n, tile_n)
    rows = tl.program_id(0) // tiles_n * tile_m + tl.arange(0, tile_m)
    columns = tl.program_id(0) % tiles_n * tile_n + tl.arange(0, tile_n)
    depth = tl.arange(0, tile_k)
    a = a_ptr + rows[:, None] * a_row + depth[None, :] * a_column
    b = b_ptr + depth[:, None] * b_row + columns[None, :] * b_column
    total = tl.zeros((tile_m, tile_n), dtype=accumulate)
    for start in range(0, k, tile_k):
        inside = start + depth < k
        x = tl.load(a, mask=(rows[:, None] < m) & inside[None, :], other=0.0)
        y = tl.load(b, mask=inside[:, None] & (columns[None, :] < n), other=0.0)
        total = tl.dot(x, y, total, input_precision=precision, out_dtype=accumulate)
        a += tile_k * a_column
        b += tile_k * b_row
    c = c_ptr + rows[:, None] * n + columns[None, :]
    tl.store(c, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def split_k(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    tile: tl.constexpr,
    tile_k: tl.constexpr,
    splits: tl.constexpr,
):
    tiles_n = tl.cdiv(n, tile)
    rows = tl.program_id(0) // tiles_n * tile + tl.arange(0, tile)
    columns = tl.program_id(0) % tiles_n * tile + tl.arange(0, tile)
    total = tl.zeros((tile, tile), dtype=tl.float32)
    for start in range(tl.program_id(1) * tile_k, k, tile_k * splits):
        depth = start + tl.arange(0, tile_k)
        a = tl.load(
            a_ptr + rows[:, None] * k + depth[None, :],
            mask=(rows[:, None] < m) & (depth[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            b_ptr + depth[:, None] * n + columns[None, :],
            mask=(depth[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total = tl.dot(a, b, total)
    c = c_ptr + rows[:, None] * n + columns[None, :]
    tl.atomic_add(c, total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    length,
    scale,
    width: tl.constexpr,
    tile_q: tl.constexpr,
    tile_k: tl.constexpr,
):
    """Causal attention of one head; `scale` holds log2(e)."""
    head = tl.program_id(1) * length * width
    rows = tl.program_id(0) * tile_q + tl.arange(0, tile_q)
    axis = tl.arange(0, width)
    q = tl.load(q_ptr + head + rows[:, None] * width + axis[None, :], mask=rows[:, None] < length)
    largest = tl.full((tile_q,), -1e30, tl.float32)
    weight = tl.zeros((tile_q,), tl.float32)
    total = tl.zeros((tile_q, width), tl.float32)
    for start in range(0, tl.minimum(length, (tl.program_id(0) + 1) * tile_q), tile_k):
        keys = start + tl.arange(0, tile_k)
        inside = keys < length
        k = tl.load(
            k_ptr + head + keys[None, :] * width + axis[:, None], mask=inside[None, :], other=0.0
        )
        v = tl.load(
            v_ptr + head + keys[:, None] * width + axis[None, :], mask=inside[:, None], other=0.0
        )
        scores = tl.dot(q, k) * scale
        scores = tl.where(inside[None, :] & (keys[None, :] <= rows[:, None]), scores, -1e30)
        higher = tl.maximum(largest, tl.max(scores, 1))
        shrink = tl.exp2(largest - higher)
        scores = tl.exp2(scores - higher[:, None])
        weight = weight * shrink + tl.sum(scores, 1)
        total = tl.dot(scores.to(v.dtype), v, total * shrink[:, None])
        largest = higher
    out = out_ptr + head + rows[:, None] * width + axis[None, :]
    tl.store(out, (total / weight[:, None]).to(tl.float16), mask=rows[:, None] < length)


@triton.jit
def softmax(x_ptr, y_ptr, n, block: tl.constexpr):
    columns = tl.arange(0, block)
    row = tl.program_id(0) * n
    x = tl.load(x_ptr + row + columns, mask=columns < n, other=-float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + columns, x / tl.sum(x, 0), mask=columns < n)


@triton.jit
def sort_and_scan(x_ptr, sorted_ptr, sums_ptr, counts_ptr, n: tl.constexpr, bins: tl.constexpr):
    place = tl.arange(0, n)
    x = tl.load(x_ptr + place)
    tl.store(sorted_ptr + place, tl.sort(x))
    tl.store(sums_ptr + place, tl.cumsum(x, 0))
    tl.store(counts_ptr + tl.arange(0, bins), tl.histogram(x, bins))


@triton.jit
def under_a_lock(lock_ptr, total_ptr, x_ptr, n: tl.constexpr):
    """Add a row to the total under a lock that the workgroups contend for."""
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    place = tl.arange(0, n)
    total = tl.load(total_ptr + place)
    tl.store(total_ptr + place, total + tl.load(x_ptr + tl.program_id(0) * n + place))
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)
