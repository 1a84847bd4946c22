"""Products that the kernel of an LU block subtracts from its rows, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from cupygemm._build.flatten import flatten
from tests.hopper_model.device import HostKernel, Model

KERNEL = """
namespace cupygemm {{
using S = {scalar};
constexpr u32 width = {width};
struct Args {{ u64 a, u, sources, scratch; i32 lda, first, count, end, n, unused; }};
}} // namespace cupygemm

extern "C" __global__ void __launch_bounds__(32) cupygemm_rows(const cupygemm::Args args) {{
    using namespace cupygemm;
    using Product = RowsProduct<S, width>;
    __shared__ typename Product::Stage stage;
    __shared__ S u[width][Product::u_pitch];
    const u32 lane = threadIdx.x;
    stage.positions[lane] = reinterpret_cast<const u32 *>(args.sources)[lane];
    for (u32 at = lane; at < width * width; at += 32)
        u[at / width][at % width] = reinterpret_cast<const S *>(args.u)[at];
    __syncwarp();
    S *const a = reinterpret_cast<S *>(args.a) + args.count;
    const BlockView<S> view{{a, args.lda, static_cast<u32>(args.first),
                             static_cast<u32>(args.count), static_cast<u32>(args.end),
                             static_cast<u32>(args.n)}};
    const RowsInScratch<S> scratch{{reinterpret_cast<S *>(args.scratch), 32}};
    Product::subtract(stage, view, u, view.first, lane, scratch);
}}
"""


@pytest.mark.parametrize("count", ["all", "fewer"])
@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("char", "fd")
def test_rows_less_a_product(char, width, count):
    """In fp32 it is as exact as sums of float32, though tf32 terms are multiplied."""
    generator, columns = np.random.default_rng(width), width if count == "all" else width - 3
    first, end = 40, 40 + (32 if count == "all" else 29)
    a = generator.standard_normal((80, 2 * width + 1)).astype(char)
    u = generator.standard_normal((width, width)).astype(char)
    u[columns:] = 0
    sources = generator.permutation(80)[:32].astype("uint32")
    sources[end - first :] = 0xFFFFFFFF
    scratch = np.full((width, 32), np.nan, char)
    text = flatten("hopper/rows_product.cuh", {}) + KERNEL.format(
        scalar={"f": "float", "d": "double"}[char], width=width
    )
    places = (each.ctypes.data for each in (a, u, sources, scratch))
    packed = struct.pack("=QQQQiiiiii", *places, a.shape[1], first, columns, end, columns, 0)
    kernel = HostKernel(Model(), text, "cupygemm_rows")
    argument = ctypes.create_string_buffer(packed, len(packed))
    kernel.launch((1, 1, 1), (32, 1, 1), 0, ctypes.addressof(argument))
    rows = end - first
    expected = np.zeros((32, width))
    expected[:rows, :columns] = a[sources[:rows], columns : 2 * columns]
    left = a[first:end, :columns].astype("d")
    expected[:rows] -= left @ u[:columns].astype("d")
    np.testing.assert_allclose(scratch.T, expected, rtol=0, atol={"f": 2e-5, "d": 1e-13}[char])
