"""The kernels of products by residues as compilers see them."""

from __future__ import annotations

import pytest

from cupygemm._backends.cdna.compile import compile_source
from cupygemm._backends.hopper.compilation.compile import compile_cubin
from cupygemm._backends.modular import kernels

KINDS = [
    (kernels.SCALES, {"along_k": True}),
    (kernels.RESIDUES, {"along_k": False, "moduli": 16}),
    (kernels.RECONSTRUCT, {"across": 64, "moduli": 16}),
]


@pytest.mark.covering
@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("char", "fd")
def test_they_stay_in_registers_on_hopper(kind, config, char):
    cubin = compile_cubin(kernels.source(kind, char, **config), kind.entry)
    assert cubin.resources().local_bytes == 0


@pytest.mark.usefixtures("cdna_compiler")
@pytest.mark.covering
@pytest.mark.parametrize(("kind", "config"), KINDS)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_they_stay_in_registers_on_cdna(kind, config, target):
    text = kernels.source(kind, "d", **config)
    assert compile_source(text, target, kind.entry).resources.scratch_bytes == 0
