"""The samples of cuBLASLt's algorithms, and the training of the network that ranks them."""

from __future__ import annotations

import itertools
import json
import lzma

from benchmarks.fit import cublaslt
from cupygemm._backends.cublaslt import model
from cupygemm._backends.network import read_network


def test_the_present_weights_choose_better_than_the_heuristics():
    _, samples = cublaslt.read([cublaslt.DATA])
    held_out = [sample for sample in samples if sample.is_held_out]
    assert len(held_out) > 200
    first, present = (cublaslt.regrets(held_out, each) for each in (None, model.network()))
    assert set(first) == {"all", "c64", "c128", "f64"}
    for name, regret in present.items():
        assert 1 < regret < 1.02 < first[name] + 0.002


def test_training_writes_weights_that_are_better(tmp_path, monkeypatch):
    lines = lzma.decompress(cublaslt.DATA.read_bytes()).decode().splitlines()[:160]
    data, weights = tmp_path / "some.jsonl.xz", tmp_path / "model.json"
    data.write_bytes(lzma.compress("\n".join(lines).encode()))
    monkeypatch.setattr(model, "PATH", weights)
    monkeypatch.setattr(cublaslt, "NETWORKS", 1)
    report = cublaslt.train([data], write=True, steps=30)
    assert "is written" in report
    assert json.loads(weights.read_text())["origin"]["device"] == "NVIDIA H200"
    read_network(weights.read_text(), model.FEATURES, "")


def test_the_design_has_all_types_and_layouts():
    products = list(itertools.islice(cublaslt.design(1), 60))
    assert {product.operands for product in products} == {"f64", "c64", "c128"}
    assert {product.layout for product in products} == {"NN", "NT", "TN", "TT"}
    assert products == list(itertools.islice(cublaslt.design(1), 60))
