"""What the first product in a process does on Hopper, besides importing modules. Needs no GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cupygemm._backends.hopper import plan
from cupygemm._backends.hopper.choice import select
from cupygemm._backends.hopper.compilation.compile import Cubin
from cupygemm._backends.protocol import DeviceProperties
from cupygemm._backends.registry import backends_for
from cupygemm._request.layout import contiguous
from cupygemm._request.request import make_request


def test_a_first_product_makes_one_choice_and_one_text(monkeypatch):
    """Each takes milliseconds of the first call in a process."""
    asked, texts = [], []
    ranked, generated = select.rank, plan.generate
    monkeypatch.setattr(select, "rank", lambda *args: asked.append(args) or ranked(*args))
    monkeypatch.setattr(plan, "generate", lambda *a, **k: texts.append(a) or generated(*a, **k))
    monkeypatch.setattr(plan, "compile_cubin", lambda text, name: Cubin(name, Path(), "none"))
    select.select.cache_clear()
    values = {"major": 9, "minor": 0, "multiProcessorCount": 132}
    backends = backends_for(
        DeviceProperties(index=0, name="H", is_hip=False, is_emulated=False, values=values)
    )
    request = make_request(*(contiguous((264, 264), np.dtype(np.float16)) for _ in "ab"))
    assert backends[0].supports(request)
    kernels = backends[0].compile(request).handle
    assert kernels.choice.gemm is kernels.choice.gemm
    assert (len(asked), len(texts)) == (1, 1)
    assert [each.name for each in backends] == ["hopper", "cublaslt", "modular", "cupy"]
