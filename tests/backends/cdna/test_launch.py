"""The argument struct: what the kernel reads is what was packed."""

import ml_dtypes
import numpy as np
import pytest

from cupygemm._backends.cdna.launch import GEMM_ARGS, GemmLaunch, pack_arguments
from cupygemm._backends.cdna.mainloops import configs_for
from cupygemm._build.flatten import device_source
from cupygemm._build.toolchain import find_toolchain
from cupygemm._request.layout import contiguous
from cupygemm._request.placement import place
from cupygemm._request.request import make_request

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def layout():
    """The launches of a batch that does not merge to three axes."""
    x1, x2 = contiguous((2, 1, 4, 1, 3, 5, 6), BF16), contiguous((3, 1, 5, 1, 6, 7), BF16)
    return place(make_request(x1, x2)).layout


def test_fields(layout):
    args = pack_arguments(layout, layout.launches[1])[0]
    assert (args["m"], args["n"], args["k"]) == (5, 7, 6)
    assert (args["lda"], args["ldb"], args["ldc"]) == (6, 7, 7)
    assert [int(args[f"batch{axis}"]) for axis in range(3)] == [3, 4, 5]
    assert len(layout.launches) == 6


def test_offsets_are_added_to_the_addresses(layout):
    seen = []

    def kernel(_grid, _block, args):
        seen.append(args[0].view(GEMM_ARGS)[0])

    config = configs_for("bf16", "gfx942")[0]
    for offsets in layout.launches:
        GemmLaunch(kernel, layout, offsets, config)(1 << 40, 2 << 40, 3 << 40)
    for args, offsets in zip(seen, layout.launches, strict=True):
        assert args["a"] == (1 << 40) + 2 * offsets.a
        assert args["b"] == (2 << 40) + 2 * offsets.b
        assert args["c"] == (3 << 40) + 2 * offsets.c
    assert len({int(args["c"]) for args in seen}) == len(seen) > 1


def test_the_struct_is_the_kernels(tmp_path):
    """Each field has the offset and size that the device compiler gives its C++ twin."""
    checks = "\n".join(
        f"static_assert(__builtin_offsetof(cupygemm::GemmArgs, {name}) == {offset});\n"
        f"static_assert(sizeof(cupygemm::GemmArgs::{name}) == {dtype.itemsize});"
        for name, (dtype, offset) in GEMM_ARGS.fields.items()
    )
    names = GEMM_ARGS.names
    text = device_source("common/platform.hpp") + device_source("common/arguments.hpp")
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("#inc", "#pragma")))
    source = tmp_path / "twin.hip"
    source.write_text(f"{text}\n{checks}\nstatic_assert(sizeof(cupygemm::GemmArgs) == 144);\n")
    find_toolchain().compile_hip(source, tmp_path / "twin.hsaco", target="gfx942")
    source.write_text(source.read_text().replace("== 8);", "== 9);", 1))
    with pytest.raises(Exception, match="static assertion failed"):
        find_toolchain().compile_hip(source, tmp_path / "twin.hsaco", target="gfx942")
    assert names[:3] == ("a", "b", "c")
