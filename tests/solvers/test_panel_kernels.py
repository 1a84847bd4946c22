"""The compiled panel kernels, and the choice of their blocks."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from cupygemm._backends.cdna.compile import compile_source
from cupygemm._backends.hopper.compilation.compile import compile_cubin
from cupygemm._solvers.common import blocks, kernels
from cupygemm._solvers.common.blocks import LIMITS, panel_blocks, words
from cupygemm._solvers.common.updates import BLOCK_ELEMENTS
from cupygemm._solvers.lu.panel import ALONE_BYTES
from tests.tables import swept

EDGES = [1, 2, 31, 33, 200, 512, 513, 4096, 8192, 8193, 16384, 20000, 100000, 1000000]


@pytest.mark.parametrize("char", "fdFD")
@pytest.mark.parametrize(("max_cluster", "wave_size"), [(1, 32), (1, 64), (8, 32), (16, 32)])
def test_a_team_holds_its_panel(char, max_cluster, wave_size):
    dtype = np.dtype(char)
    for m in EDGES:
        if m * words(dtype) > 2_000_000:
            continue
        shape = panel_blocks(m, dtype, max_cluster, wave_size)
        assert shape.rows * shape.threads * shape.team >= m
        assert shape.rows * shape.width * words(dtype) <= LIMITS.registers
        assert shape.threads % wave_size == 0
        assert LIMITS.outer % shape.width == 0


@pytest.mark.parametrize("m", [128, 129, 512, 2048, 2049, 4096])
def test_groups_of_a_cluster_exchange_candidates_for_the_pivot(m):
    for size in (1, 2):
        shape = blocks._in_clusters(m, size, 16, LIMITS)
        assert shape.width == 32
        assert shape.rows * shape.threads * shape.team >= m
        assert shape.team * shape.threads // 32 <= 64  # what TeamOf requires
    assert blocks._in_clusters(4097, 2, 16, LIMITS) is None
    assert blocks._in_clusters(m, 2, 1, LIMITS) is None


def test_a_panel_that_is_too_tall():
    with pytest.raises(ValueError, match="of 9000000 rows is too tall"):
        panel_blocks(9_000_000, np.dtype("d"), 8, 32)


PANELS = [
    (kernels.LU_PANEL, {"width": 32, "team": 1}),
    (kernels.LU_PANEL, {"width": 16, "team": 16}),
    (kernels.QR_PANEL, {"width": 32, "team": 1, "by_products": False}),
    (kernels.QR_PANEL, {"width": 16, "team": 16, "by_products": False}),
]


def panel_source(kind, constants, char, *, clusters):
    size = words(np.dtype(char))
    constants = constants | {"threads": 256}
    constants["width"] = min(constants["width"], 64 // size if size > 2 else 32)
    constants["rows"] = max(LIMITS.registers // constants["width"] // size, 1)
    return kernels.source(kind, char, constants, clusters=clusters)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize(("kind", "constants"), PANELS)
@pytest.mark.parametrize("char", "fdFD")
def test_panels_stay_in_registers_on_hopper(kind, constants, char):
    text = panel_source(kind, constants, char, clusters=constants["team"] > 1)
    assert compile_cubin(text, kind.entry).resources().local_bytes == 0


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("char", "rows", "most"), [("d", 2, 160), ("f", 2, 0), ("d", 1, 32)])
def test_blocks_that_are_factored_by_products_stay_in_registers(char, rows, most):
    """In float64, 32 threads of a workgroup lack a few registers for the small factors.

    NVRTC 13.0 spills 160 and 32 bytes of them, NVRTC 13.5 spills 112 and none.
    """
    constants = {"width": 32, "team": 16, "by_products": True, "threads": 256, "rows": rows}
    text = kernels.source(kernels.QR_PANEL, char, constants, clusters=True)
    assert compile_cubin(text, kernels.QR_PANEL.entry).resources().local_bytes <= most


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("char", "most"), [("d", 40), ("f", 0)])
def test_first_rows_of_halves_stay_in_registers(char, most):
    text = kernels.source(kernels.QR_TOP, char, {"threads": 512, "groups": 16, "rows": 4})
    assert compile_cubin(text, kernels.QR_TOP.entry).resources().local_bytes <= most


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize("char", "dfFD")
def test_no_update_of_float64_shares_an_sm_with_a_panel(char):
    most_of_block, of_sm, of_system = 227 << 10, 228 << 10, 1 << 10
    size = words(np.dtype(char))
    for threads in (LIMITS.cluster_threads, LIMITS.threads):
        constants = {"width": 64 // size if size > 2 else 32, "rows": 1, "threads": threads}
        text = kernels.source(kernels.LU_PANEL, char, constants | {"team": 16}, clusters=True)
        cubin = compile_cubin(text, kernels.LU_PANEL.entry).path.read_bytes()
        section = ELFFile(BytesIO(cubin)).get_section_by_name(".nv.shared.cupygemm_lu_panel")
        panel_bytes = section["sh_size"] + ALONE_BYTES
        assert panel_bytes <= most_of_block
        if char == "d":
            assert of_sm - panel_bytes - 2 * of_system < 8 * BLOCK_ELEMENTS


@pytest.mark.slow
@pytest.mark.usefixtures("cdna_compiler")
@pytest.mark.covering
@pytest.mark.parametrize(("kind", "constants"), PANELS)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_panels_stay_in_registers_on_cdna(kind, constants, target):
    text = panel_source(kind, constants, "d", clusters=False)
    assert compile_source(text, target, kind.entry).resources.scratch_bytes == 0


WINDOWED = [
    pytest.param(kind, kernels.source(kind, "f", constants), id=kind.name)
    for kind, constants in (
        (kernels.WINDOWED_TILE, {"threads": 512, "rows": 5, "groups": 16}),
        (kernels.NEXT_WINDOW, {"threads": 1024, "rows": 160, "across": 4}),
    )
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "text"), WINDOWED)
def test_tiles_of_windows_stay_in_registers_on_hopper(kind, text):
    assert compile_cubin(text, kind.entry).resources().local_bytes == 0


@pytest.mark.slow
def test_the_code_of_a_tile_fits_in_a_cache():
    """Kernels that run beside it evict longer code: 64 KiB, of 128 on an SM."""
    kind, text = WINDOWED[0].values
    assert compile_cubin(text, kind.entry).resources().code_bytes <= 64 << 10


@pytest.mark.slow
@pytest.mark.usefixtures("cdna_compiler")
@pytest.mark.parametrize(("kind", "text"), WINDOWED)
@pytest.mark.parametrize("target", ["gfx942", *swept("gfx90a", "gfx950")])
def test_tiles_of_windows_stay_in_registers_on_cdna(kind, text, target):
    assert compile_source(text, target, kind.entry).resources.scratch_bytes == 0


SYSTEM = {"threads": 64, "conjugate": False, "unit": False}
SYSTEM |= {"rows_adjacent": False, "b_rows_adjacent": False}


@pytest.mark.slow
@pytest.mark.usefixtures("cdna_compiler")
@pytest.mark.one_in(3)
@pytest.mark.covering
@pytest.mark.parametrize(("char", "width"), [("f", 32), ("d", 32), ("F", 16)])
def test_right_hand_sides_stay_in_registers_on_cdna(char, width):
    system = kernels.TRIANGULAR_SOLVE, SYSTEM | {"block": width}
    reflector = kernels.REFLECT_APPLY, {"threads": 256, "tile": width, "width": width}
    for kind, constants in (system, reflector):
        compiled = compile_source(kernels.source(kind, char, constants), "gfx942", kind.entry)
        assert compiled.resources.scratch_bytes == 0
        assert compiled.resources.vgprs <= 256  # so that a SIMD holds two waves
