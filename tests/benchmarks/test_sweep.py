"""The sweep of `benchmarks.fit`: the design, the file of samples, and the budget."""

import itertools
import time
from collections import Counter

import pytest

from benchmarks.fit import __main__ as command
from benchmarks.fit import fitting
from benchmarks.fit.design import (
    LAYOUTS,
    OTHER_TYPES,
    ROUND,
    design,
    held_out_design,
    near_design,
    of_type,
)
from benchmarks.fit.hopper_kernels import H200, HopperKernels
from benchmarks.fit.samples import Product, Sample, SampleFile, Timing, compact
from benchmarks.fit.sweep import compiled, sweep
from benchmarks.models.layers import HELD_OUT


class FakeKernels:
    """Two kernels for each product, with invented times."""

    def __init__(self, seconds=0.0):
        self.seconds, self.now = seconds, 0.0

    def machine(self):
        return {"device": "fake", "unit": "us"}

    def candidates(self, product, first, others):
        return [{"tile_m": 64}, {"tile_m": 128}][: first + others]

    def compile(self, product, config):
        if product.shape[0] == 13:
            raise ValueError("13 rows have no kernel")

    def measure(self, product, configs):
        self.now += self.seconds
        timings = [Timing(config, config["tile_m"] / 7, 2.0) for config in configs]
        return Sample(product, tuple(timings), vendor=3.0)


def products(*rows):
    return [
        Product(shape=(m, 64, 64), operands="bf16", result="bf16", layout="NT", group="test")
        for m in rows
    ]


def test_the_design_is_balanced_and_repeatable():
    size = sum(ROUND.values()) + len(OTHER_TYPES)
    drawn = list(itertools.islice(design(1), 10 * size))
    assert drawn == list(itertools.islice(design(1), 10 * size))
    assert len(set(drawn)) == len(drawn)
    assert {product.layout for product in drawn} == set(LAYOUTS)
    groups = Counter(product.group for product in drawn if product.operands == "bf16")
    for group, count in ROUND.items():
        assert 7 * count <= groups[group] <= 12 * count


def test_products_near_layers_have_the_rows_that_were_asked_for_and_no_held_out_extents():
    drawn = list(itertools.islice(near_design(3, (257, 700)), 300))
    assert drawn == list(itertools.islice(near_design(3, (257, 700)), 300))
    assert len(set(drawn)) == len(drawn)
    rows = [product.shape[0] for product in drawn]
    assert 257 <= min(rows) < 300
    assert 650 < max(rows) <= 700
    held_out = {nk for layers in HELD_OUT.values() for nk in layers.values()}
    assert not held_out & {product.shape[1:] for product in drawn}
    kernels = HopperKernels(H200)
    assert all(kernels.candidates(product, 4, 2) for product in drawn[:20])


def test_products_of_bytes_near_layers_have_rows_that_need_no_copies():
    drawn = list(itertools.islice(of_type(near_design(3, (257, 700)), "e4m3fn"), 100))
    assert len(set(drawn)) == len(drawn)
    assert {extent % 16 for product in drawn for extent in product.shape} == {0}
    assert {(p.operands, p.result, p.layout) for p in drawn} == {("e4m3fn", "bf16", "NT")}


def test_layers_that_no_fit_sees_are_all_held_out():
    drawn = list(itertools.islice(held_out_design(3, (65, 256)), 100))
    assert len(set(drawn)) == len(drawn)
    assert {65 <= product.shape[0] <= 256 for product in drawn} == {True}
    held_out = {nk for layers in HELD_OUT.values() for nk in layers.values()}
    assert {product.shape[1:] for product in drawn} <= held_out
    for product in drawn:
        assert fitting.is_held_out(product)
        assert fitting.is_held_out(product.with_group(product.group + fitting.COLD))


def test_kernels_of_each_kind_are_measured_as_they_run():
    product = Product((100, 3072, 8192), "bf16", "bf16", "NT", "kinds")
    placed = HopperKernels(H200, by_sm=True, kinds=True).candidates(product, 2, 0)
    others = HopperKernels(H200, kinds=True).candidates(product, 2, 0)
    assert placed
    for config in placed:
        assert config not in others
        assert config["cluster_m"] * config["cluster_n"] * config["cluster_k"] == 1
    for shares in (
        lambda config: config["split_k"] > 1,
        lambda config: config["stream_k"] > 0,
        lambda config: config["cluster_k"] > 1,
        lambda config: config["cluster_m"] * config["cluster_n"] > 1,
    ):
        assert sum(map(shares, others)) >= 2
    plain = HopperKernels(H200).candidates(product, 2, 0)
    assert len(others) > len(plain) == 2


def test_products_of_the_design_have_kernels():
    kernels = HopperKernels(H200)
    for product in itertools.islice(design(2), 60):
        configs = kernels.candidates(product, 4, 2)
        assert configs, product
        assert len({str(config) for config in configs}) == len(configs)


def test_a_sweep_continues_its_file(tmp_path):
    path = tmp_path / "samples.jsonl.xz"
    for rows, measured in (((1, 2), 2), ((1, 2, 3), 1)):
        assert (
            sweep(FakeKernels(), products(*rows), SampleFile.open(path), 60, workers=0) == measured
        )
    found = SampleFile.open(path)
    assert [sample.product.shape[0] for sample in found.samples] == [1, 2, 3]
    assert [machine["device"] for machine in found.machines] == ["fake", "fake"]
    timing = found.samples[2].timings[1]
    assert timing == Timing({"tile_m": 128}, pytest.approx(128 / 7, rel=1e-3), 2.0)
    assert found.samples[0].vendor == 3.0


def test_an_interrupted_write_loses_no_more_than_its_own_samples(tmp_path):
    path = tmp_path / "samples.jsonl.xz"
    sweep(FakeKernels(), products(1), SampleFile.open(path), 60, workers=0)
    whole = path.read_bytes()
    sweep(FakeKernels(), products(2), SampleFile.open(path), 60, workers=0)
    for end in (len(whole) + 5, len(path.read_bytes()) - 7):
        path.write_bytes(path.read_bytes()[:end])
        assert SampleFile.open(path).products == set(products(1))
        sweep(FakeKernels(), products(2), SampleFile.open(path), 60, workers=0)
        assert SampleFile.open(path).products == set(products(1, 2))


def test_files_are_merged(tmp_path):
    paths = [tmp_path / "a.xz", tmp_path / "b.xz"]
    for rows, path in enumerate(paths):
        sweep(FakeKernels(), products(rows + 1), SampleFile.open(path), 60, workers=0)
    compact(paths, tmp_path / "both.xz")
    assert SampleFile.open(tmp_path / "both.xz").products == set(products(1, 2))
    command.main(["merge", *map(str, paths), "--out", str(paths[0])])
    assert SampleFile.open(paths[0]).products == set(products(1, 2))
    assert len(paths[0].read_bytes()) < len(paths[1].read_bytes()) * 2


def test_a_sweep_stops_in_time(tmp_path, monkeypatch):
    kernels = FakeKernels(1.0)
    monkeypatch.setattr(time, "monotonic", lambda: kernels.now)
    file = SampleFile.open(tmp_path / "samples.jsonl.xz")
    count = sweep(kernels, products(*range(20, 1000)), file, 5, workers=0)
    assert count == 5
    assert len(SampleFile.open(file.path).samples) == count


def test_kernels_that_do_not_compile_are_left_out(tmp_path, capsys):
    configs, errors = compiled(products(13)[0], FakeKernels(), 2, 0, time.monotonic() + 60)
    assert not configs
    assert all("13 rows have no kernel" in error for error in errors)
    file = SampleFile.open(tmp_path / "samples.jsonl.xz")
    assert sweep(FakeKernels(), products(13, 14), file, 60, workers=0) == 1
    assert "13 rows" in capsys.readouterr().out
