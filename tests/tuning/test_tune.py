"""`tune` and the database of winners: what is measured, kept, read, and passed over."""

import dataclasses
import sqlite3

import numpy as np
import pytest

import cupygemm
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.config import GemmConfig
from cupygemm._backends.cdna.select import select
from cupygemm._backends.device import Device
from cupygemm._backends.device import device as device_of
from cupygemm._backends.hopper import backend as hopper_backend
from cupygemm._backends.hopper.backend import HopperBackend
from cupygemm._backends.hopper.choice.configurations import configs_for
from cupygemm._backends.hopper.config import HopperArch, HopperConfig
from cupygemm._backends.hopper.plan import HopperChoice
from cupygemm._build.cache import CacheError
from cupygemm._plan import winners
from cupygemm._plan.plan import choose
from cupygemm._plan.table import PLANS
from cupygemm._products import matmul as _matmul
from cupygemm._request.layout import contiguous
from cupygemm._request.options import Options
from cupygemm._request.request import make_request
from cupygemm._tuning import tune as _tune
from cupygemm._tuning.product import products_of
from cupygemm._tuning.timer import DeviceTimer
from tests.problems import problem_of

PROBLEM = problem_of(64, 96, 128, "f32")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Give each test a database of its own; kernels stay in the cache that all share."""
    monkeypatch.setattr(winners, "database", lambda: tmp_path / "cache" / "tuned.sqlite3")
    yield tmp_path / "cache"
    PLANS.clear()


@pytest.fixture
def measurable(cp, device, monkeypatch):
    """Return the session's device as one that can be measured, under a name of its own."""
    if device.kind == "cuda" and not device.has_kernels:
        pytest.skip("no kernel of ours runs here")
    place = dataclasses.replace(device_of(0), is_emulated=False, name="a GPU of the tests")
    monkeypatch.setattr(_tune, "device", lambda index: place)
    monkeypatch.setattr(_matmul, "device", lambda index: place)
    return place


def config_of(index):
    return select(PROBLEM, ARCHS["gfx942"]).candidates[index].config


def test_a_winner_is_kept_and_replaced():
    first, second = config_of(0), config_of(1)
    assert winners.winner("GPU", PROBLEM, GemmConfig) is None
    winners.record("GPU", PROBLEM, first, seconds=2e-6, candidates=8)
    winners.record("GPU", PROBLEM, second, seconds=1e-6, candidates=8)
    found, row = winners.winner("GPU", PROBLEM, GemmConfig)
    assert found == second
    assert row.microseconds == 1
    assert "fastest of 8 measured on GPU by cupygemm.tune" in row.describe("GPU")
    assert winners.winner("another GPU", PROBLEM, GemmConfig) is None
    assert winners.count_winners() == {"GPU": 1}
    assert winners.winner("GPU", dataclasses.replace(PROBLEM, k=256), GemmConfig) is None
    span = dataclasses.replace(PROBLEM, a_span=1 << 20)  # how far the matrix reaches in memory
    assert winners.winner("GPU", span, GemmConfig)[0] == second


def test_a_damaged_database_counts_as_empty_with_a_warning(folder):
    folder.mkdir()
    winners.database().write_bytes(b"no database" * 1000)
    with pytest.warns(RuntimeWarning, match=r"tuned\.sqlite3 cannot be read .*delete it"):
        assert winners.winner("GPU", PROBLEM, GemmConfig) is None
    assert winners.count_winners() == {}
    with pytest.raises(CacheError, match=r"cannot be written: .*delete it if it is damaged"):
        winners.record("GPU", PROBLEM, config_of(0), seconds=1e-6, candidates=8)


def test_a_folder_that_cannot_be_written_is_named(folder):
    folder.write_text("a file")
    with pytest.raises(CacheError, match=r"cannot be written: .*set CUPYGEMM_CACHE_DIR"):
        winners.record("GPU", PROBLEM, config_of(0), seconds=1e-6, candidates=8)
    assert winners.winner("GPU", PROBLEM, GemmConfig) is None


def test_a_configuration_of_another_version_is_passed_over():
    winners.record("GPU", PROBLEM, config_of(0), seconds=1e-6, candidates=8)
    with sqlite3.connect(winners.database()) as connection:
        connection.execute("update winners set config = '{\"no_such_field\": 1}'")
    connection.close()
    winners._rows.cache_clear()
    assert winners.winner("GPU", PROBLEM, GemmConfig) is None


def test_the_emulated_device_gives_the_model_and_keeps_nothing(cp, device):
    if not device.emulated:
        pytest.skip("for the emulated device")
    (found,) = cupygemm.tune([(64, 96, 128)], "float32", candidates=3)
    assert found.kind == "modelled"
    assert len(found.figures) == 3
    cycles = [figure for _, figure in found.figures]
    assert cycles == sorted(cycles)
    assert "64x96x128 float32 NN on gfx" in str(found)
    assert not winners.database().exists()


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
    if "gfx" in device_of(0).name:
        a, b = cp.ones((64, 128), np.float32), cp.ones((128, 96), np.float32)
        before = cupygemm.explain(a, b)
        wrong = dataclasses.replace(before.config, tile_k=7)
        winners.record(measurable.name, before.problem, wrong, seconds=1e-6, candidates=4)
        assert cupygemm.explain(a, b).config == before.config


def test_measuring_takes_the_median_of_batches(monkeypatch):
    """A batch has about as many calls as fit into `BATCH_SECONDS`."""
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


def hopper(name="H200"):
    """Return an H200 of which nothing but the selection works."""
    backend = HopperBackend(HopperArch(part=name))
    return Device(index=0, name=name, is_emulated=False, backends=(backend,)), backend


@pytest.fixture
def chosen(monkeypatch):
    """Return a function that tells the configuration of a request on a device, and why."""
    monkeypatch.setattr(HopperChoice, "gemm", None)

    def choose_on(request, place):
        choices = []
        original = hopper_backend.choose
        monkeypatch.setattr(
            hopper_backend,
            "choose",
            lambda *a, **k: choices.append(original(*a, **k)) or choices[-1],
        )
        with pytest.raises(AttributeError):  # there is no compiler
            choose(request, place)
        monkeypatch.setattr(hopper_backend, "choose", original)
        return choices[-1].selection

    return choose_on


def test_winners_are_read_on_any_backend(chosen):
    (product,) = products_of("tune", [(512, 512, 512)], "bfloat16", None, ["NN"])
    request = product.request
    (h200, backend), (h100, _) = hopper("H200"), hopper("H100")
    first, second = (candidate.config for candidate in backend.candidates(request)[:2])
    problem = backend.problem(request)
    winners.record("H200", problem, second, seconds=1e-6, candidates=4)
    assert chosen(request, h200).config == second
    assert chosen(request, h100).config == first
    assert "measured on H200" in chosen(request, h200).reason
    wrong = dataclasses.replace(second, tile_k=7)
    winners.record("H200", problem, wrong, seconds=1e-6, candidates=4)
    assert chosen(request, h200).config == first


@pytest.mark.parametrize("dtype", ["f64", "tf32x3"])
def test_a_winner_is_taken_even_where_the_model_prefers_a_library(dtype, chosen):
    numpy_dtype, precision = ("f8", "ieee") if dtype == "f64" else ("f4", dtype)

    def request_of(k):
        a, b = (contiguous(shape, np.dtype(numpy_dtype)) for shape in ((256, k), (k, 256)))
        return make_request(a, b, options=Options(precision=precision))

    (h200, backend), config = hopper(), configs_for(dtype)[-1]
    assert "cuBLAS multiplies" in backend.supports(request_of(256)).reason
    problem = backend.problem(request_of(256))
    winners.record("H200", problem, config, seconds=1e-6, candidates=4)
    assert chosen(request_of(256), h200).config == config
    if dtype == "tf32x3":  # what is less exact than asked for is no question of time
        problem = backend.problem(request_of(8))
        winners.record("H200", problem, config, seconds=1e-6, candidates=4)
        with pytest.raises(TypeError, match="less exact"):
            choose(request_of(8), h200)


def test_the_fastest_is_also_measured_in_the_other_raster(cp, monkeypatch):
    """The clock of this test finds Hilbert's order faster, and measures it for the fastest only."""
    place, backend = hopper()
    seen = []

    def measure(config, operands):
        seen.append(config)
        return (1 if config.raster == "hilbert" else 2 + len(seen)) * 1e-6  # the first, of others

    monkeypatch.setattr(backend, "compile", lambda request, config, reason: config)
    monkeypatch.setattr(backend, "launch", lambda request, compiled: compiled)
    monkeypatch.setattr(_tune, "measure", measure)
    (product,) = products_of("tune", [(4096, 4096, 64)], "bfloat16", None, ["NN"])
    found = _tune._tune_one(product, place, 3)
    assert [config.raster for config in seen] == ["grouped"] * 3 + ["hilbert"]
    assert seen[3] == dataclasses.replace(seen[0], raster="hilbert") == found.figures[0][0]
    problem = backend.problem(product.request)
    assert winners.winner("H200", problem, HopperConfig)[0] == seen[3]
