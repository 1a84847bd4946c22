"""The fit of the cost models: it recovers known constants, and the models use what it writes."""

import itertools
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.fit import __main__ as command
from benchmarks.fit import cdna, constants_file, fitting, hopper, network
from benchmarks.fit.design import design, near_design, of_type
from benchmarks.fit.hopper_kernels import H200, HopperKernels
from benchmarks.fit.layouts import layout_of
from benchmarks.fit.samples import Product, Sample, SampleFile, Timing
from cupygemm._backends.cdna import constants as cdna_constants
from cupygemm._backends.cdna import select as cdna_select
from cupygemm._backends.cdna.cost_constants import ASSUMED
from cupygemm._backends.cdna.mainloops import MAINLOOPS
from cupygemm._backends.hopper.choice import fp64, tf32x3
from cupygemm._backends.hopper.choice.orientation import as_computed
from cupygemm._backends.hopper.choice.tile_shapes import CONFIGS
from cupygemm._backends.hopper.config import HopperConfig
from cupygemm._backends.hopper.cost import constants as hopper_constants
from cupygemm._backends.hopper.cost import correction
from cupygemm._backends.hopper.cost import model as cost

MACHINE = {"device": "NVIDIA H200", "num_sms": 132, "driver": "1", "date": "2026-01-01"}


@dataclass(frozen=True, eq=False)
class Line:
    """Constants of a made-up model: a start, and a rate for each kind."""

    start: float
    rates: dict
    unused: float
    nothing: float


def line(constants, subjects):
    return [constants.start + size / constants.rates[kind] for size, kind in subjects]


def line_rows(constants, noise=0.0):
    rng = np.random.default_rng(0)
    rows = []
    for number in range(60):
        product = Product(
            shape=(number,), operands="bf16", result="bf16", layout="NN", group="test"
        )
        for kind in (1, 2, 4):
            subject = (float(rng.integers(1, 1000)), kind)
            time = line(constants, [subject])[0] * np.exp(noise * rng.normal())
            rows.append(fitting.Row(product, subject, time))
    return rows


PRESENT = Line(start=20.0, rates={1: 3.0, 2: 3.0, 4: 3.0}, unused=5.0, nothing=0.0)
TRUE = Line(start=31.0, rates={1: 2.0, 2: 4.0, 4: 5.0}, unused=5.0, nothing=0.0)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_fit_recovers_known_constants(noise):
    fitted = fitting.fit(PRESENT, line_rows(TRUE, noise), line)
    found, true = fitting.flatten(fitted), fitting.flatten(TRUE)
    assert found == pytest.approx(true, rel=0.005 + noise)
    assert fitted.unused == PRESENT.unused
    assert fitted.nothing == 0


def test_constants_can_be_fixed_and_held_within_ranges():
    rows = line_rows(TRUE)
    assert fitting.fit(PRESENT, rows, line, fixed=("start",)).start == PRESENT.start
    fitted = fitting.fit(PRESENT, rows, line, ranges={"start": 0.1})
    assert fitted.start <= PRESENT.start * np.exp(0.1) * 1.01


def test_errors_and_which_fit_is_better():
    rows = line_rows(TRUE)
    exact, off = fitting.errors(TRUE, rows, line), fitting.errors(PRESENT, rows, line)
    assert (exact.median, exact.regret, exact.products, exact.kernels) == (0, 1, 60, 180)
    assert off.median > 0.1
    assert off.regret >= 1
    assert fitting.is_better(exact, off)
    assert not fitting.is_better(off, exact)
    assert not fitting.is_better(exact, exact)
    # A model that errs less, but chooses worse kernels, is not better.
    assert not fitting.is_better(replace(off, median=0.0, regret=1.5), replace(off, regret=1.4))


def test_the_held_out_products_are_always_the_same():
    train, test = fitting.split(line_rows(TRUE))
    assert {row.product for row in train}.isdisjoint(row.product for row in test)
    assert 0.1 < len(test) / (len(train) + len(test)) < 0.4
    assert [row.product for row in fitting.split(line_rows(TRUE))[1]] == [r.product for r in test]


def hopper_samples(path, constants, count):
    """Return samples of Hopper's model itself with other constants."""
    kernels, file = HopperKernels(H200), SampleFile(path)
    file.add_machine(MACHINE)
    products = (each for each in design(3) if each.operands == "bf16")
    for product in itertools.islice(products, count):
        asked = layout_of(product).problem
        timings = []
        for described in kernels.candidates(product, 4, 2):
            config = HopperConfig(**described)
            problem = as_computed(asked, transposed_c=config.transposed_c)
            cycles = float(cost.kernel_cost(config, problem, H200, constants).cycles)
            timings.append(Timing(described, cycles / H200.clock_mhz + 2.0, copies=2.0))
        file.add(Sample(product, tuple(timings)))
    file.flush()
    return SampleFile.open(path)


def test_a_refit_of_hopper_recovers_what_the_samples_determine(tmp_path):
    present = hopper_constants.KERNELS
    true = replace(present, launch=2.0 * present.launch, memory=0.8 * present.memory, mma=1.2)
    file = hopper_samples(tmp_path / "samples.xz", true, 48)
    named = {field.name for field in fields(present)} - {"launch", "memory", "mma"}
    (report,) = hopper.refit([file], fixed=named, max_steps=9).values()
    assert report.after.launch == pytest.approx(true.launch, rel=0.02)
    assert report.after.memory == pytest.approx(true.memory, rel=0.02)
    assert report.after.mma == pytest.approx(true.mma, rel=0.02)
    assert report.is_better
    assert report.new.median < 0.01 < report.old.median
    assert "better than the present" in str(report)


def test_times_of_cublas_and_of_copies_are_fitted():
    for model, name, operands, result in (
        (fp64, "FP64", "f64", "f64"),
        (tf32x3, "FP32", "tf32x3", "f32"),
    ):
        present = getattr(hopper_constants, name)
        true = fitting.replaced(
            present, {key: 1.3 * value for key, value in fitting.flatten(present).items()}
        )
        file = SampleFile(Path("unused"), machines=[MACHINE])
        for number in range(40):
            odd = number % 2
            shape = (64 + 37 * number + odd, 256 + 8 * number + odd, 512 + 16 * number + odd)
            shape = (8, *shape) if number % 4 == 2 else shape
            product = Product(
                shape=shape, operands=operands, result=result, layout="NN", group="test"
            )
            problem = layout_of(product).problem
            vendor = model.cublas_cycles(problem, H200, true) / H200.clock_mhz
            copies = model.copy_cycles(problem, true) / H200.clock_mhz
            timings = (Timing({}, 100.0 + copies, copies),)
            file.samples.append(Sample(product, timings, vendor))
        rows = hopper.rows_of_vendor(file, operands)
        fitted = fitting.fit(present, rows, hopper.predictor_of_vendor(model))
        assert fitting.flatten(fitted) == pytest.approx(fitting.flatten(true), rel=0.05)


def test_the_choice_between_our_kernels_and_cublas(tmp_path):
    """Times of the models themselves have no regret; a slower cuBLAS than modelled has."""
    kernels, file = HopperKernels(H200), SampleFile(tmp_path / "samples.xz", machines=[MACHINE])
    for product in itertools.islice((p for p in design(4) if p.operands == "f64"), 40):
        asked = layout_of(product).problem
        (described,) = kernels.candidates(product, 1, 0)
        config = HopperConfig(**described)
        subject = hopper.Subject(config, as_computed(asked, transposed_c=config.transposed_c), H200)
        ours = hopper.predict(hopper_constants.KERNELS, [subject])[0] + fp64.copy_cycles(asked)
        vendor = fp64.cublas_cycles(asked, H200) / H200.clock_mhz
        file.samples.append(Sample(product, (Timing(described, ours / H200.clock_mhz),), vendor))
    models = (fp64, "f64", hopper_constants.KERNELS)
    assert hopper._regret_beside_cublas([file], *models, hopper_constants.FP64) == 1
    slow = replace(hopper_constants.FP64, fma_per_clock=40.0, launch=60000.0)
    assert hopper._regret_beside_cublas([file], *models, slow) > 1.01


@pytest.mark.parametrize(
    ("subject", "module"), [(hopper, hopper_constants), (cdna, cdna_constants)]
)
def test_the_modules_of_constants_are_as_the_command_writes_them(subject, module):
    records = {name: getattr(module, name) for name in subject.RECORDS}
    text = constants_file.text_of(module, module.PROVENANCE, records)
    assert text == Path(module.__file__).read_text(encoding="utf-8")
    assert {"device", "driver", "date", "products", "kernels"} <= module.PROVENANCE.keys()


def test_the_models_use_the_modules_of_constants():
    (product,) = itertools.islice(design(1), 1)
    problem = layout_of(product).problem
    config = HopperConfig(**HopperKernels(H200).candidates(product, 1, 0)[0])
    problem = as_computed(problem, transposed_c=config.transposed_c)
    for constants, same in (
        (hopper_constants.KERNELS, True),
        (replace(hopper_constants.KERNELS, launch=1e6), False),
    ):
        given = cost.kernel_cost(config, problem, H200, constants).cycles
        assert (given == cost.kernel_cost(config, problem, H200).cycles) == same
    row = cdna.rows_of(SampleFile.open(cdna_files()[0]))[0]
    for constants, same in (
        (cdna_constants.KERNELS, True),
        (replace(cdna_constants.KERNELS, load_ns=1e6), False),
    ):
        given = cdna_select.estimate(*row.subject, constants).cycles
        assert (given == cdna_select.estimate(*row.subject).cycles) == same


def test_every_mainloop_has_a_start():
    assert cdna_constants.KERNELS.start_cycles.keys() == MAINLOOPS.keys()


def cdna_files():
    return sorted(command.DATA.glob("gfx*_emulated.jsonl.xz"))


def test_the_command_prints_errors_and_writes_better_constants(tmp_path, monkeypatch, capsys):
    copy = tmp_path / "constants.py"
    worse = replace(cdna_constants.KERNELS, add_cycles=20000.0, load_ns=2000.0)
    module = type(sys)("constants")
    module.__file__, module.KERNELS = str(copy), worse
    module.PROVENANCE = cdna_constants.PROVENANCE
    copy.write_text(Path(cdna_constants.__file__).read_text(encoding="utf-8"))
    monkeypatch.setattr(cdna, "present", module)
    data = [str(path) for path in cdna_files()]
    command.main(["cdna", "--data", *data, "--write", "--max-steps", "8"])
    printed = capsys.readouterr().out
    assert "held out of the fit" in printed
    assert "start_cycles[ping_pong]" in printed
    assert f"{copy} is written" in printed
    written = {}
    exec(compile(copy.read_text(), str(copy), "exec"), written)
    assert written["KERNELS"].add_cycles < 10000
    assert written["PROVENANCE"]["device"] == "gfx942 (emulated), gfx950 (emulated)"


def test_without_samples_the_command_names_the_sweep(tmp_path):
    with pytest.raises(SystemExit, match="run a sweep first"):
        command.main(["hopper", "--data", str(tmp_path / "missing.xz")])


def test_the_committed_samples_give_the_constants_of_cdna():
    """The fit started from 2500 cycles for each mainloop, and the constants before it."""
    rows = [row for path in cdna_files() for row in cdna.rows_of(SampleFile.open(path))]
    train, test = fitting.split(rows)
    present = cdna_constants.KERNELS
    start = replace(
        present,
        start_cycles=dict.fromkeys(present.start_cycles, 2500.0),
        load_ns=690.0,
        add_cycles=2300.0,
        add_round_cycles=1180.0,
    )
    fitted = fitting.fit(start, train, cdna.predict, fixed=ASSUMED)
    assert fitting.flatten(fitted) == pytest.approx(fitting.flatten(present), rel=0.03)
    old, new = (fitting.errors(each, test, cdna.predict) for each in (start, present))
    assert fitting.is_better(new, old)
    assert new.regret <= old.regret
    assert new.regret == pytest.approx(cdna_constants.PROVENANCE["chosen_over_fastest"], abs=2e-3)
    assert new.median == pytest.approx(cdna_constants.PROVENANCE["median_error"], abs=0.01)


@pytest.mark.slow
def test_training_a_network_lowers_the_regret_of_wrong_models():
    """The samples are the model's own with another launch of clusters and other steps."""
    constants = hopper_constants.KERNELS
    true = replace(
        constants,
        launch_of_clusters={1: 0.0, 2: 9000.0, 4: 9000.0},
        meeting=dict.fromkeys(constants.meeting, 90.0),
    )
    rows = []
    for product in itertools.islice((p for p in design(6) if p.operands == "bf16"), 60):
        asked = layout_of(product).problem
        for described in HopperKernels(H200).candidates(product, 6, 4):
            config = HopperConfig(**described)
            problem = as_computed(asked, transposed_c=config.transposed_c)
            subject = hopper.Subject(config, problem, H200)
            cycles = hopper.predict(true, [subject])[0]
            rows.append(fitting.Row(product, subject, cycles))
            cold = product.with_group(product.group + fitting.COLD)
            rows.append(fitting.Row(cold, subject._replace(cold=True), 1.1 * cycles))
    outcome = network.retrain(rows, constants, correction.network(), steps=60)
    assert network.mean_regret(outcome.new) < network.mean_regret(outcome.without)
    assert outcome.is_better
    assert "better than the present ones" in str(outcome)


def test_regrets_are_of_one_gpu_and_of_the_mean_of_times(monkeypatch):
    """The model prefers the first kernel; times of another GPU, or a second time, add nothing."""
    product = next(p for p in design(6) if p.operands == "bf16")
    problem, cold = layout_of(product).problem, product.with_group(product.group + fitting.COLD)
    first, second = CONFIGS[:2]
    other = replace(H200, part="H100")

    def row(config, arch, cycles, of=product):
        is_cold = of is cold
        return fitting.Row(of, hopper.Subject(config, problem, arch, is_cold), cycles)

    preferred = {first: 0.0, second: 1.0}

    def table_of(rows, _):
        modelled = np.array([preferred[row.subject.config] for row in rows])
        measured = np.log([row.measured for row in rows])
        return SimpleNamespace(modelled=modelled, measured=measured)

    monkeypatch.setattr(network, "table_of", table_of)
    rows = [row(first, H200, 1200.0), row(second, H200, 1000.0)]
    rows += [row(first, H200, 1200.0, cold), row(second, H200, 1000.0, cold)]
    name = f"bf16, {product.group}"
    assert network.regrets(rows, None, None)[name] == pytest.approx([1.2])
    rows += [row(second, H200, 1000.0)]
    assert network.regrets(rows, None, None)[name] == pytest.approx([1.2])
    rows += [row(first, other, 300.0), row(second, other, 400.0)]
    assert network.regrets(rows, None, None)[name] == pytest.approx([1.2, 1.0])


def test_training_can_begin_with_the_present_weights(monkeypatch):
    """Where no step is taken, they stay as they are, although they are trained in four parts."""
    monkeypatch.setattr(network, "minimize", lambda _, start, **__: SimpleNamespace(x=start))
    present, rows = correction.network(), []
    for product in itertools.islice((p for p in design(6) if p.operands == "bf16"), 20):
        asked = layout_of(product).problem
        for described in HopperKernels(H200).candidates(product, 2, 0):
            config = HopperConfig(**described)
            problem = as_computed(asked, transposed_c=config.transposed_c)
            rows.append(fitting.Row(product, hopper.Subject(config, problem, H200), 1e4))
    outcome = network.retrain(rows, hopper_constants.KERNELS, present, resume=True)
    normal = np.random.default_rng(0).normal(size=(50, len(correction.FEATURES)))
    inputs = (present.mean + present.deviation * normal).astype("f4")
    assert outcome.network(inputs) == pytest.approx(present(inputs), abs=1e-5)
    assert outcome.new == outcome.present


def test_training_of_one_feature_changes_no_kernel_without_it():
    """By the invented times, clusters double those of kernels with it."""
    present, rows = correction.network(), []
    for product in itertools.islice(of_type(near_design(6), "e4m3fn"), 40):
        problem = layout_of(product).problem
        for described in HopperKernels(H200).candidates(product, 4, 2):
            config = HopperConfig(**described)
            subject = hopper.Subject(config, problem, H200)
            cycles = hopper.predict(hopper_constants.KERNELS, [subject])[0]
            rows.append(fitting.Row(product, subject, cycles * (1 + (config.cluster_size > 1))))
    outcome = network.retrain(
        rows, hopper_constants.KERNELS, present, only="8-bit floats", steps=40, resume=True
    )
    assert network.mean_regret(outcome.new) < network.mean_regret(outcome.present)
    normal = np.random.default_rng(0).normal(size=(50, len(correction.FEATURES)))
    inputs = (present.mean + present.deviation * normal).astype("f4")
    inputs[:, correction.FEATURES.index("8-bit floats")] = 0
    assert outcome.network(inputs) == pytest.approx(present(inputs), abs=1e-5)


def test_a_network_can_be_trained_after_a_feature_was_added(monkeypatch, capsys):
    assert command._present_network() is not None
    monkeypatch.setattr(correction, "FEATURES", (*correction.FEATURES, "another"))
    correction.network.cache_clear()
    try:
        assert command._present_network() is None
    finally:
        monkeypatch.undo()
        correction.network.cache_clear()
    assert "fitted to other features" in capsys.readouterr().out


def test_the_loss_of_the_network_has_the_gradient_that_it_says():
    rng = np.random.default_rng(0)
    product = np.repeat(np.arange(5), 4)
    counts = np.array([1.0, 3.0, 1.0, 3.0, 1.0])
    table = network.Table(rng.normal(size=(20, 35)), *rng.normal(size=(2, 20)) / 5, product, counts)
    loss = network._Loss(table, table.features)
    weights = rng.normal(size=35 * network.HIDDEN + 2 * network.HIDDEN + 1) / 10
    value, gradient = loss(weights)
    for place in (0, 100, 35 * network.HIDDEN + 3, len(weights) - 1):
        moved = weights.copy()
        moved[place] += 1e-6
        assert (loss(moved)[0] - value) / 1e-6 == pytest.approx(gradient[place], rel=1e-3, abs=1e-5)


def test_a_product_that_counts_three_times_is_as_three_products():
    rng = np.random.default_rng(1)
    product = np.repeat(np.arange(3), 4)
    found, (modelled, measured) = rng.normal(size=(12, 35)), rng.normal(size=(2, 12)) / 5
    table = network.Table(found, modelled, measured, product, np.array([1.0, 3.0, 1.0]))
    again = np.concatenate([np.arange(12), np.arange(4, 8), np.arange(4, 8)])
    thrice = network.Table(
        found[again],
        modelled[again],
        measured[again],
        np.concatenate([product, np.repeat((3, 4), 4)]),
        np.ones(5),
    )
    weights = rng.normal(size=35 * network.HIDDEN + 2 * network.HIDDEN + 1) / 10
    for one, other in zip(
        network._Loss(table, table.features)(weights),
        network._Loss(thrice, thrice.features)(weights),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_samples_are_of_a_gpu_with_its_bandwidth(tmp_path):
    file = SampleFile(tmp_path / "samples.xz")
    file.add_machine({**MACHINE, "hbm_bytes_per_clock": 1704})
    assert hopper.arch_of(file).hbm_bytes_per_clock == 1704
    file.add_machine(MACHINE)  # of a sweep before the bandwidth was noted: an H200's
    with pytest.raises(SystemExit, match="2 GPUs"):
        hopper.arch_of(file)
