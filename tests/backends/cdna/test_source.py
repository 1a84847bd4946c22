"""The generated translation unit."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._backends.cdna.source import ENTRY, config_text, generate
from cupygemm._build.flatten import device_source, flatten
from tests.problems import problem_of

PROBLEM = problem_of(100, 200, 300, out_dtype="f32", majors="mn")


@pytest.fixture(scope="module")
def config():
    """Any configuration."""
    return configs_for("bf16", "gfx942")[0]


def test_one_unit_with_one_entry(config):
    text = generate(PROBLEM, config, "gfx942")
    assert "#include" not in text
    assert "#pragma once" not in text
    assert text.count('extern "C"') == 1
    assert re.search(rf"\b{ENTRY}\(", text)


def test_every_file_is_there_once(config):
    text = generate(PROBLEM, config, "gfx942")
    names = re.findall(r"^// ---- (\S+) ----$", text, re.MULTILINE)
    assert len(names) == len(set(names))
    assert {"common/platform.hpp", "cdna/gemm.hip", "config.hpp"} <= set(names)


def test_the_config_names_every_field(config):
    text = config_text(PROBLEM, config, "gfx942")
    for line in (
        "using ElementA = bf16;",
        "using ElementC = f32;",
        "Major a_major = Major::row;",
        "Major b_major = Major::row;",
        "int tile_m = 256;",
        "int waves_n = 2;",
        "u32 num_xcds = 8;",
        '#include "cdna/mainloop_register_double_buffer.hpp"',
    ):
        assert line in text


def test_extents_share_a_kernel(config):
    """Whatever is not dtype, major or dword alignment is an argument of the launch."""
    other = replace(PROBLEM, m=7, n=8, k=9, batch=(3,), a_align=4, b_align=8, a_span=1 << 40)
    assert generate(other, config, "gfx942") == generate(PROBLEM, config, "gfx942")
    for changes in ({"a_align": 2}, {"out_dtype": "bf16"}, {"a_major": "k"}):
        assert generate(replace(PROBLEM, **changes), config, "gfx942") != generate(
            PROBLEM, config, "gfx942"
        )


def test_workgroups_are_dealt_as_the_device_does(config):
    assert "num_xcds = 1;" in config_text(PROBLEM, config, "gfx90a")
    assert "num_xcds = 1;" in config_text(PROBLEM, replace(config, xcd_remap=False), "gfx942")


def test_sources_are_package_data():
    """They are read from the installed package, not found beside it."""
    assert (
        device_source("cdna/gemm.hip")
        == files("cupygemm.kernels").joinpath("cdna/gemm.hip").read_text()
    )
    with pytest.raises(FileNotFoundError):
        device_source("cdna/none.hpp")


def test_generated_files_come_before_those_on_disk():
    assert "// other" in flatten("config.hpp", {"config.hpp": "// other\n"})
