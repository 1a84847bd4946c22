"""Results of single bytes on the modelled GPU: each width of tile, each way to store."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import cupygemm
from cupygemm import emulator, testing
from tests.cuda.test_bytes import (  # noqa: F401
    test_every_part_of_an_epilogue,
    test_integers_after_an_epilogue_saturate,
    test_integers_wrap_as_numpys,
    test_nothing_is_written_beside_the_result,
    test_rounding_is_to_nearest_even_and_saturates,
)
from tests.cuda.variants import E4M3, F32, product, variants_of_bytes


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_n", "num_stages", "group_m", "orders", "tile_k"))
@pytest.mark.parametrize("variant", list(variants_of_bytes())[::3], ids=lambda v: v.name)
def test_each_store_is_exact(cp, model, variant):
    config = variant.config
    m, n = config.tile_m * config.cluster_m + 21, config.tile_n * config.cluster_n + 48
    for seed, extents in enumerate([(m, n, 3 * config.tile_k + 8), (5, 9, 400)]):
        model.seed = seed
        x1, x2, result = product(variant, *extents)
        testing.assert_gemm_exact(result, x1, x2)


def test_products_of_fp32_are_rounded_by_cupy(cp, monkeypatch):
    """The only kernel that sums them exactly is for small matrices."""
    monkeypatch.setattr(emulator, "is_enabled", lambda: False)  # the session's device may be
    x1, x2 = testing.random_operands((200, 300), (300, 100), F32)
    largest = float(ml_dtypes.finfo(E4M3).max)
    x1[3], x2[:, 4] = largest, 1
    a, b = cp.asarray(x1), cp.asarray(x2)
    explanation = cupygemm.explain(a, b, dtype="float8_e4m3fn")
    assert explanation.backend == "cupy.matmul"
    assert "converted from float32 to float8_e4m3fn" in explanation.copies[0]
    out = cp.zeros((200, 100), np.uint8)
    cupygemm.matmul(a, b, out, dtype="float8_e4m3fn")
    testing.assert_gemm_close(out.get().view(E4M3), x1, x2)
    with pytest.raises(TypeError, match=r"8-bit floats of .* are float8_e4m3fn and float8_e5m2"):
        cupygemm.matmul(a, b, dtype="float8_e4m3fnuz")
