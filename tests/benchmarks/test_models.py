"""`benchmarks.models` without a GPU: its products, its rotation, its report, and its command."""

import json

import ml_dtypes
import numpy as np
import pytest

from benchmarks.models import __main__ as command
from benchmarks.models import report
from benchmarks.models.cublaslt import LtProduct
from benchmarks.models.kernels import choice_of
from benchmarks.models.layers import (
    FEW,
    HELD_OUT,
    MODELS,
    MORE,
    layers,
    products,
    row_of,
)
from benchmarks.models.measure import COLD_BYTES, operands_of
from benchmarks.models.peers import Case
from benchmarks.models.rotation import MAX_SETS, Operand, Rotating, num_sets, places
from cupygemm._backends.cublaslt import library
from tests.backends.cublaslt.fake_library import FakeLibrary

BF16 = np.dtype(ml_dtypes.bfloat16)


def test_layers_are_named_once_and_have_their_own_tokens():
    found = layers()
    assert len({(layer.n, layer.k) for layer in found}) == len(found) > 50
    assert {layer.model for layer in found} <= set(MODELS)
    with pytest.raises(ValueError, match="no model 'GPT-5'; there are: Llama 3 8B"):
        layers(["GPT-5"])
    of_images = {tokens for tokens, _ in products(["ViT-L/16"])}
    assert 197 in of_images
    assert 1 not in of_images
    assert {tokens for tokens, _ in products(FEW, [3, 5])} == {3, 5}
    assert [row_of(tokens) for tokens in (1, 8, 33, 197, 512, 2048, 8192)] == [
        "1 to 8",
        "1 to 8",
        "9 to 64",
        "65 to 256",
        "257 to 1024",
        "1025 to 4096",
        "above 4096",
    ]


def test_no_layer_is_both_trained_on_and_held_out():
    trained, held_out, more = (
        {(layer.n, layer.k) for layer in layers(tuple(models))}
        for models in (MODELS, HELD_OUT, MORE)
    )
    assert held_out
    assert not trained & held_out
    assert len(more) == sum(map(len, MORE.values()))  # each once
    assert not more & (trained | held_out)


@pytest.mark.parametrize("set_bytes", [1 << 10, 3 << 20, 33 << 20, 1 << 30])
def test_cold_sets_hold_the_bytes_that_l2_must_lose(set_bytes):
    sets = num_sets(set_bytes, COLD_BYTES)
    assert sets == MAX_SETS or (sets - 1) * set_bytes >= COLD_BYTES
    assert num_sets(set_bytes, 0) == 1


def test_sets_lie_apart_and_aligned():
    operands = [Operand((3, 5), BF16), Operand((7, 5), BF16, transposed=True)]
    found = places(operands, 4)
    starts = sorted(start for each in found for start in each)
    ends = [start + operands[i].nbytes for each in found for i, start in enumerate(each)]
    assert all(start % 512 == 0 for start in starts)
    assert all(end <= start for end, start in zip(sorted(ends), starts[1:], strict=False))


def test_calls_take_every_set_in_turn():
    taken = []
    call = Rotating(lambda x, out: taken.append((x, out)), [(1, 2), (3, 4), (5, 6)])
    call.warm_up(2)
    call()
    assert taken == [(1, 2), (3, 4), (5, 6)] * 2 + [(1, 2)]


@pytest.mark.parametrize(("order", "shape"), [("(n, k)", (48, 80)), ("(k, n)", (80, 48))])
def test_operands_are_stored_as_the_order_says(order, shape):
    (x, w), out = operands_of(Case(16, 48, 80, BF16, order))
    assert (x.shape, w.shape, out.shape) == ((16, 80), shape, (16, 48))
    assert w.transposed == (order == "(n, k)")


def record(m, ours, torch, other, order="(n, k)"):
    us = {"cupygemm": ours, "torch": torch, "DeepGEMM": other}
    return {
        "model": "ViT-L/16",
        "layer": "up",
        "case": f"{m}x4096x1024",
        "dtype": "bf16",
        "order": order,
        "m": m,
        "n": 4096,
        "k": 1024,
        "config": "tile",
        "us": {"warm": us, "cold": {name: 2 * time for name, time in us.items()}},
    }


def test_the_report_takes_the_fastest_peer_of_each_product():
    records = [record(8, 10.0, 20.0, 5.0), record(512, 10.0, 10.0, 40.0)]
    assert report.ratios(records[0], "warm") == {"torch": 2.0, "DeepGEMM": 0.5, "fastest": 0.5}
    found = report.summary(records, "cold")
    assert list(found) == ["1 to 8", "257 to 1024", "all"]
    assert found["all"]["torch"] == (pytest.approx(2**0.5), 1.0, 2)
    assert found["all"]["fastest"] == (pytest.approx(0.5**0.5), 0.5, 2)
    lines = report.tables([*records, record(8, 1.0, 1.0, 1.0, "(k, n)")])
    assert "| tokens | products | torch | DeepGEMM | fastest |" in lines
    assert "| 1 to 8 | 1 | 2.00 (2.00) | 0.50 (0.50) | 0.50 (0.50) |" in lines
    assert any("(k, n), cold" in line for line in lines)
    assert "1.17 is of random shapes" in report.beside_random_shapes(records)[0]
    assert report.worst(records)[0].startswith("0.50  8x4096x1024")


def test_products_without_peers_have_no_ratios():
    alone = record(8, 1.0, 1.0, 1.0)
    for state in alone["us"]:
        alone["us"][state] = {"cupygemm": 1.0}
    assert report.ratios(alone, "warm") == {}
    assert report.beside_random_shapes([alone]) == []
    assert report.worst([alone]) == []


def test_the_command_lists_and_chooses_without_a_gpu(capsys):
    command.main(["--list", "--models", "GPT-OSS 20B", "--tokens", "128"])
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == 8  # four layers, both orders of W
    assert listed[0].startswith("GPT-OSS 20B, qkv: 128x5120x2880 bf16, W stored (n, k); 31.5 MB")
    command.main(["--dry-run", "--models", "ViT-L/16", "--tokens", "197", "--dtypes", "fp16"])
    assert all("; 64x" in line or "; 128x" in line for line in capsys.readouterr().out.splitlines())


def test_tf32_is_another_product_of_fp32_for_each_contender(monkeypatch):
    fake = FakeLibrary()
    monkeypatch.setattr(library, "library", lambda: fake)
    library.handle.cache_clear()
    single = np.dtype(np.float32)
    computed = []
    for tf32 in (True, False):
        product = LtProduct(512, 96, 64, single, w_transposed=True, tf32=tf32)
        assert product.algorithms()
        computed += [each["compute"] for each in fake.records.values() if "compute" in each]
        del product
    assert computed == [77, 68]  # CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_COMPUTE_32F
    library.handle.cache_clear()
    rounded = choice_of(Case(512, 96, 64, single, tf32=True))
    assert rounded.problem.a_dtype == "tf32"
    assert choice_of(Case(512, 96, 64, single)) is None


def test_a_sample_has_so_many_products_of_each_number_of_tokens(capsys):
    def listed(*options):
        command.main(["--list", "--tokens", "8", "512", *options])
        return capsys.readouterr().out.splitlines()

    every, sample = listed(), listed("--sample", "5", "--seed", "3")
    assert [sum(f": {tokens}x" in line for line in sample) for tokens in (8, 512)] == [5, 5]
    assert sample == [line for line in every if line in sample]  # in the order of all
    assert sample == listed("--sample", "5", "--seed", "3") != listed("--sample", "5")
    assert listed("--sample", "1000") == every


@pytest.mark.slow
def test_the_chart_has_a_point_for_each_product(tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks.models import chart

    figures = tmp_path / "figures.json"
    machine = {"device": "NVIDIA H200", "date": "2026-11-22"}
    records = [record(8, 10.0, 20.0, 5.0), record(512, 10.0, 10.0, 40.0)]
    figures.write_text(json.dumps({"environment": machine, "records": records}))
    chart.main([str(figures), str(tmp_path / "chart.png")])
    assert (tmp_path / "chart.png").stat().st_size > 5000
