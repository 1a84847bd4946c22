"""Tables of configurations: a wrong row fails when it is used, and the error quotes the row."""

import pytest

from cupygemm._backends.cdna.arch import ARCHS, SCALED_TYPES
from cupygemm._backends.cdna.mainloops import MAINLOOPS, direct_to_lds, register_double_buffer
from cupygemm._backends.cdna.mainloops.lds_tiles import Tile
from cupygemm._backends.config_table import ConfigTable
from cupygemm._backends.hopper.choice import tile_shapes
from cupygemm._records.dtypes import ELEMENT_TYPES

HEAD = "tile_m tile_n tile_k waves_m waves_n num_stages waves_per_simd largest_mma"


def test_rows_have_the_columns_of_the_first_line():
    table = ConfigTable("a", Tile, f"\n  {HEAD}\n  1 2 3 4 5 6 7 16\n\n  8 9 10 11 12 13 14 32\n")
    assert len(table) == 2
    assert table[0] == Tile(
        tile_m=1, tile_n=2, tile_k=3, waves_m=4, waves_n=5, num_stages=6, waves_per_simd=7
    )
    assert [tile.largest_mma for tile in table] == [16, 32]
    assert table[1:] == (table[1],)


@pytest.mark.parametrize(
    ("head", "row", "text"),
    [
        (HEAD, "64 64 64 2 2 1 2", "has 7 values for the 8 columns tile_m tile_n"),
        (HEAD, "64 64 64 2 0 1 2 16", "waves_n = 0 is not a positive integer"),
        (HEAD, "64 64 64 2 two 1 2 16", "waves_n = two is not a positive integer"),
        (HEAD.replace("tile_k", "depth"), "64 64 64 2 2 1 2 16", "'depth'"),
    ],
)
def test_a_wrong_row_is_quoted_when_it_is_used(head, row, text):
    table = ConfigTable("tiles", Tile, f"{head}\n{row}")  # no error yet
    with pytest.raises(ValueError, match=text) as caught:
        list(table)
    assert str(caught.value).startswith(f"row 1 of tiles, {row!r}: ")


def test_a_row_that_its_record_refuses_is_quoted():
    table = ConfigTable("t", lambda a, b: a // (b - 1), "a b\n4 3\n5 1")
    with pytest.raises(ValueError, match="row 2 of t, '5 1': integer division"):
        len(table)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_wrong_row_of_a_mainloop_names_the_row(arch, monkeypatch):
    wide = ARCHS[arch].lds_bytes > 64 << 10
    name = "_TILES_160K" if wide else "_TILES_64K"
    for module in (register_double_buffer, direct_to_lds):
        monkeypatch.setattr(module, name, ConfigTable(name, Tile, f"{HEAD}\n1 2 3"))
        with pytest.raises(ValueError, match=f"row 1 of {name}, '1 2 3': has 3 values"):
            module.configs("bf16", arch)


def test_the_tables_of_hopper_are_valid():
    for table in (
        tile_shapes.CONFIGS,
        tile_shapes.NARROW_CONFIGS,
        tile_shapes.TRANSPOSED_CONFIGS,
        tile_shapes.F64_CONFIGS,
    ):
        assert len(table) == len(set(table))
    assert all(config.transposed_c for config in tile_shapes.TRANSPOSED_CONFIGS)
    assert all(config.mma_sync for config in tile_shapes.F64_CONFIGS)


def test_tables_are_not_parsed_by_an_import(run_python):
    code = """
from cupygemm._backends.cdna.mainloops import register_double_buffer
from cupygemm._backends.hopper.choice import tile_shapes
for module in (register_double_buffer, tile_shapes):
    for table in vars(module).values():
        if type(table).__name__ == "ConfigTable":
            print("rows" in vars(table))
"""
    assert set(run_python(code).split()) == {"False"}


@pytest.mark.parametrize("arch", ARCHS)
def test_instructions_of_configurations_exist(arch):
    for dtype in ELEMENT_TYPES:
        for mainloop in MAINLOOPS.values():
            for config in mainloop.configs(dtype, arch):
                assert config.mma in ARCHS[arch].mfma_cycles[dtype]


def test_the_deepest_instruction():
    arch = ARCHS["gfx950"]
    assert arch.deepest_mma("bf16", 16) == (16, 16, 32)
    assert arch.deepest_mma("bf16", 32) == (32, 32, 16)
    assert arch.deepest_mma("e4m3fn", 16) == (16, 16, 128)
    assert arch.deepest_mma("e4m3fn", 16, operand_bytes=16) == (16, 16, 32)
    assert arch.deepest_mma("f64", 32) is None
    assert arch.deepest_mma("tf32", 16) is None
    assert str(arch.deepest_mma(SCALED_TYPES[0], 16)) == "16x16x64"
