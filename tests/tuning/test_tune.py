"""`tune` and the database of winners: what is measured, kept, read, and passed over."""

import dataclasses
import sqlite3

import numpy as np
import pytest

import cupygemm
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.select import select
from cupygemm._backends.device import device as device_of
from cupygemm._build.cache import CacheError
from cupygemm._products import matmul as _matmul
from cupygemm._records.problem import GemmProblem
from cupygemm._request import call as _call
from cupygemm._request.layout import contiguous
from cupygemm._tuning import database as _tuned
from cupygemm._tuning import tune as _tune
from cupygemm._tuning.timer import DeviceTimer

PROBLEM = GemmProblem(64, 96, 128, (), "f32", "f32", "f32", "k", "n")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Give each test a database of its own; kernels stay in the cache that all share."""
    monkeypatch.setattr(_tuned, "database", lambda: tmp_path / "cache" / "tuned.sqlite3")
    yield tmp_path / "cache"
    _matmul.forget_plans()


@pytest.fixture
def measurable(cp, device, monkeypatch):
    """Return the session's device as one that can be measured, under a name of its own."""
    if device.kind == "cuda" and not device.has_kernels:
        pytest.skip("no kernel of ours runs here")
    place = dataclasses.replace(device_of(0), is_emulated=False, name="a GPU of the tests")
    monkeypatch.setattr(_tune, "device", lambda index: place)
    monkeypatch.setattr(_call, "device", lambda index: place)
    return place


def config_of(index):
    return select(PROBLEM, ARCHS["gfx942"]).candidates[index].config


def test_a_winner_is_kept_and_replaced():
    first, second = config_of(0), config_of(1)
    assert _tuned.winner("GPU", PROBLEM, GemmConfig) is None
    _tuned.record("GPU", PROBLEM, first, 2e-6, 8)
    _tuned.record("GPU", PROBLEM, second, 1e-6, 8)
    found, row = _tuned.winner("GPU", PROBLEM, GemmConfig)
    assert found == second
    assert row.microseconds == 1
    assert "fastest of 8 measured on GPU by cupygemm.tune" in row.describe("GPU")
    assert _tuned.winner("another GPU", PROBLEM, GemmConfig) is None
    assert _tuned.count_winners() == {"GPU": 1}
    assert _tuned.winner("GPU", dataclasses.replace(PROBLEM, k=256), GemmConfig) is None
    span = dataclasses.replace(PROBLEM, a_span=1 << 20)  # how far the matrix reaches in memory
    assert _tuned.winner("GPU", span, GemmConfig)[0] == second


def test_a_damaged_database_counts_as_empty_with_a_warning(folder):
    folder.mkdir()
    _tuned.database().write_bytes(b"no database" * 1000)
    with pytest.warns(RuntimeWarning, match=r"tuned\.sqlite3 cannot be read .*delete it"):
        assert _tuned.winner("GPU", PROBLEM, GemmConfig) is None
    assert _tuned.count_winners() == {}
    with pytest.raises(CacheError, match=r"cannot be written: .*delete it if it is damaged"):
        _tuned.record("GPU", PROBLEM, config_of(0), 1e-6, 8)


def test_a_folder_that_cannot_be_written_is_named(folder):
    folder.write_text("a file")
    with pytest.raises(CacheError, match=r"cannot be written: .*set CUPYGEMM_CACHE_DIR"):
        _tuned.record("GPU", PROBLEM, config_of(0), 1e-6, 8)
    assert _tuned.winner("GPU", PROBLEM, GemmConfig) is None


def test_a_configuration_of_another_version_is_passed_over():
    _tuned.record("GPU", PROBLEM, config_of(0), 1e-6, 8)
    with sqlite3.connect(_tuned.database()) as connection:
        connection.execute("update winners set config = '{\"no_such_field\": 1}'")
    connection.close()
    _tuned._rows.cache_clear()
    assert _tuned.winner("GPU", PROBLEM, GemmConfig) is None


def test_the_emulated_device_gives_the_model_and_keeps_nothing(cp, device):
    if not device.emulated:
        pytest.skip("for the emulated device")
    (found,) = cupygemm.tune([(64, 96, 128)], "float32", candidates=3)
    assert found.kind == "modelled"
    assert len(found.figures) == 3
    cycles = [figure for _, figure in found.figures]
    assert cycles == sorted(cycles)
    assert "64x96x128 float32 NN on gfx" in str(found)
    assert not _tuned.database().exists()


def test_the_fastest_is_used_from_then_on(cp, measurable, monkeypatch):
    """The clock of this test finds the second candidate fastest."""
    times = iter([2e-6, 1e-6])
    monkeypatch.setattr(_tune, "measure", lambda run, operands: next(times))
    a, b = cp.ones((64, 128), np.float32), cp.ones((128, 96), np.float32)
    before = cupygemm.explain(a, b)
    cupygemm.matmul(a, b)
    (found,) = cupygemm.tune([(64, 96, 128)], "float32", candidates=2, progress=False)
    assert found.kind == "measured"
    assert [round(figure) for _, figure in found.figures] == [1, 2]
    after = cupygemm.explain(a, b)
    assert after.config == found.figures[0][0] != before.config
    assert "fastest of 2 measured on a GPU of the tests" in after.why
    assert (cp.asnumpy(cupygemm.matmul(a, b)) == 128).all()
    assert cupygemm.explain(a, b, dtype="float16").config == before.config  # another product


def test_a_winner_that_the_kernels_no_longer_take_is_passed_over(cp, measurable, monkeypatch):
    if measurable.is_hip:
        a, b = cp.ones((64, 128), np.float32), cp.ones((128, 96), np.float32)
        before = cupygemm.explain(a, b)
        wrong = dataclasses.replace(before.config, tile_k=7)
        _tuned.record(measurable.name, before.problem, wrong, 1e-6, 4)
        assert cupygemm.explain(a, b).config == before.config


def test_measuring_takes_the_median_of_batches(monkeypatch):
    """Of about as many calls as take `BATCH_SECONDS`."""
    batches, calls = [], []

    def batch(timer, count, cycles):
        timer._call()
        batches.append(count)
        return count * (1e-3 + 1e-5 * len(batches)), True

    monkeypatch.setattr(DeviceTimer, "batch", batch)
    seconds = _tune.measure(lambda *operands: calls.append(operands), ["a", "b"])
    assert seconds == pytest.approx(1e-3 + 1e-5 * 4)
    assert batches == [3] + [10] * _tune.BATCHES
    assert calls == [("a", "b", None)] * (1 + len(batches))


def test_hopper_reads_it_too():
    """Selection needs no GPU."""
    from cupygemm._backends.hopper import plan as hopper_plan
    from cupygemm._backends.hopper.config import HopperArch
    from cupygemm._request.promotion import HOPPER_PRODUCTS
    from cupygemm._request.request import pose
    from cupygemm._tuning.product import products_of

    arch = HopperArch(part="H200", num_sms=132)
    (product,) = products_of("tune", [(512, 512, 512)], "bfloat16", None, ["NN"])
    layout = pose(*product.operands(), products=HOPPER_PRODUCTS).layout
    model = hopper_plan.choose(layout, arch)
    other = model.selection.candidates[1].config
    _tuned.record("H200", layout.problem, other, 1e-6, 4)
    assert hopper_plan.choose(layout, arch, tuned_on="H200").config == other
    assert hopper_plan.choose(layout, arch, tuned_on="H100").config == model.config
    assert "measured on H200" in hopper_plan.choose(layout, arch, tuned_on="H200").selection.reason
    _tuned.record("H200", layout.problem, dataclasses.replace(other, tile_k=7), 1e-6, 4)
    assert hopper_plan.choose(layout, arch, tuned_on="H200").config == model.config


@pytest.mark.parametrize("dtype", ["f64", "tf32x3"])
def test_a_winner_is_not_compared_with_cublas_on_hopper(dtype):
    """The model has cuBLAS multiply these sooner, but what was measured counts."""
    from cupygemm._backends.hopper import plan as hopper_plan
    from cupygemm._backends.hopper.config import HopperArch
    from cupygemm._backends.hopper.tile_shapes import configs_for
    from cupygemm._request.options import Options
    from cupygemm._request.promotion import HOPPER_PRODUCTS
    from cupygemm._request.request import pose

    def layout_of(k):
        a, b = (contiguous(shape, np.dtype(numpy_dtype)) for shape in ((256, k), (k, 256)))
        return pose(a, b, options=Options(precision=precision), products=HOPPER_PRODUCTS).layout

    numpy_dtype, precision = ("f8", "ieee") if dtype == "f64" else ("f4", dtype)
    layout, config = layout_of(256), configs_for(dtype)[-1]
    with pytest.raises(ValueError, match="cuBLAS multiplies"):
        hopper_plan.choose(layout, HopperArch(), tuned_on="H200")
    _tuned.record("H200", layout.problem, config, 1e-6, 4)
    assert hopper_plan.choose(layout, HopperArch(), tuned_on="H200").config == config
    if dtype == "tf32x3":  # what is less exact than asked for is no question of time
        _tuned.record("H200", layout_of(8).problem, config, 1e-6, 4)
        with pytest.raises(ValueError, match="less exact"):
            hopper_plan.choose(layout_of(8), HopperArch(), tuned_on="H200")


def test_hoppers_fastest_is_also_measured_in_hilberts_order(cp, monkeypatch):
    """The clock of this test finds Hilbert's order faster, but no other than the fastest so."""
    from cupygemm._backends.hopper.config import HopperArch, HopperConfig
    from cupygemm._tuning.product import products_of

    arch = HopperArch()
    place = dataclasses.replace(
        device_of(0), arch=arch, is_hip=False, is_emulated=False, name="H200"
    )
    seen = []

    def measure(config, operands):
        seen.append(config)
        return (1 if config.raster == "hilbert" else 2 + len(seen)) * 1e-6  # the first, of others

    monkeypatch.setattr(_tune, "_runner", lambda posed, place, config: config)
    monkeypatch.setattr(_tune, "measure", measure)
    (product,) = products_of("tune", [(4096, 4096, 64)], "bfloat16", None, ["NN"])
    found = _tune._tune_one(product, place, 3)
    assert [config.raster for config in seen] == ["grouped"] * 3 + ["hilbert"]
    assert seen[3] == dataclasses.replace(seen[0], raster="hilbert") == found.figures[0][0]
    posed = product.posed(place)
    config, row = _tuned.winner("H200", posed.layout.problem, HopperConfig)
    assert config == seen[3]
    assert row.candidates == 4
