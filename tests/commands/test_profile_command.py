"""``python -m cupygemm profile``: products, code objects, their arguments, and wrong ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from cupygemm import emulator
from cupygemm._build.cache import get_or_build
from cupygemm._build.toolchain import find_toolchain
from cupygemm._commands import cli as _cli
from cupygemm._commands import terminal as _terminal
from cupygemm._commands.products import MX_FORMATS, arrays
from cupygemm._tuning.product import products_of
from cupygemm.emulator import calibration
from cupygemm.emulator.arguments import parse_argument, parse_arguments, parse_extent
from cupygemm.emulator.calibration.figures import Figure

SOURCE = """\
#define KERNEL extern "C" __attribute__((global)) void
KERNEL add(int n, float a, const float* x, float* y) {
    int i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
    if (i < n) y[i] += a * x[i];
}
"""
OTHER = "KERNEL nothing() {}\n"


@pytest.fixture
def invoke() -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(_cli.app, ["profile", *map(str, arguments)])


def build(source: str) -> Path:
    toolchain = find_toolchain()

    def compile_it(output: Path) -> None:
        path = output.with_suffix(".hip")
        path.write_text(source)
        toolchain.compile_hip(path, output, target="gfx942", options=["-O2"])

    return get_or_build("test-profile", [source, toolchain.version], ".hsaco", compile_it)


ADD = ("--grid", "4", "--args", "i32:250 f32:2.5 f32[250]=ones f32[250]=arange")


def test_a_code_object(invoke: Callable[..., Any], tmp_path: Path) -> None:
    picture = tmp_path / "roofline.png"
    result = invoke(build(SOURCE), *ADD, "--json", "--roofline", picture, "--clock", "1500")
    assert result.exit_code == 0, result.output
    (kernel,) = json.loads(result.output)["kernels"]
    assert (kernel["kernel"], kernel["target"], kernel["waves"]) == ("add", "gfx942", 4)
    assert kernel["vector_flop"] == {"f32": 2 * 250}
    memory = kernel["global_memory"]
    assert (memory["bytes_read"], memory["bytes_written"]) == (2000, 1000)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert kernel["modelled"]["clock_mhz"] == 1500


def test_source_in_another_encoding(invoke: Callable[..., Any], tmp_path: Path) -> None:
    source = tmp_path / "latin.hip"
    text = "// größe\n__global__ void k(int* x) { x[threadIdx.x] = 1; }\n"
    source.write_bytes(text.encode("latin-1"))
    result = invoke(source, "--args", "i32[64]")
    assert result.exit_code == 0, result.output


def test_a_code_object_for_people(invoke: Callable[..., Any], tmp_path: Path) -> None:
    picture = tmp_path / "timeline.png"
    words = (*ADD, "--block", "64,1", "--listing", "--source", "--timeline", picture)
    result = invoke(build(SOURCE), *words, "--cycles", "0:500")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("add on emulated gfx942: grid 4x1x1, block 64x1x1")
    assert "global_store_dword" in result.output
    assert "compile with -g" in result.output
    assert "Modelled time" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_kernel_out_of_several(invoke: Callable[..., Any]) -> None:
    path = build(SOURCE + OTHER)
    assert invoke(path, "--kernel", "nothing").exit_code == 0
    result = invoke(path)
    assert result.exit_code == 2
    assert "choose a kernel; it has add, nothing" in result.output


def test_a_product(invoke: Callable[..., Any], device: Any) -> None:
    result = invoke("48", "32", "64", "--dtype", "fp16", "--json")
    if not device.emulated:
        assert result.exit_code == 2
        return
    assert result.exit_code == 0, result.output
    (kernel,) = json.loads(result.output)["kernels"]
    assert sum(kernel["matrix_flop"].values()) >= 2 * 48 * 32 * 64
    assert list(kernel["matrix_flop"]) == ["f16"]
    assert kernel["global_memory"]["bytes_written"] == 2 * 48 * 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "layout"),
    [
        ("fp16", "NN"),
        ("bfloat16", "NT"),
        ("fp32", "TT"),
        ("uint8", "TN"),
        ("e5m2fnuz", "NT"),
        ("float8_e4m3fnuz", "TN"),
        ("complex64", "TT"),
    ],
)
def test_a_product_named_as_for_warmup_and_tune(
    invoke: Callable[..., Any], device: Any, dtype: str, layout: str
) -> None:
    if device.target != "gfx942":
        pytest.skip("the types are those of gfx942")
    words = ("--dtype", dtype, "--layout", layout, "--json")
    result = invoke("2x33x32x64", *words)
    assert result.exit_code == 0, result.output
    kernels = json.loads(result.output)["kernels"]
    real = 4 if dtype == "complex64" else 1
    done = sum(sum(kernel["matrix_flop"].values()) for kernel in kernels)
    assert done >= real * 2 * 2 * 33 * 32 * 64
    assert CliRunner().invoke(_cli.app, ["tune", "2x33x32x64", *words]).exit_code == 0


def counted(result: Any) -> float:
    """Return the operations that the matrix unit did in a profile."""
    assert result.exit_code == 0, result.output
    return float(sum(sum(k["matrix_flop"].values()) for k in json.loads(result.output)["kernels"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "layout"),
    [
        pytest.param(name, layout, marks=pytest.mark.sweep)
        for name in MX_FORMATS
        for layout in ("NN", "NT", "TN", "TT")
    ]
    + [("mxfp4", "NT"), ("mxfp8,e3m2", "NN"), ("bf16,fp32", "TN")],
)
def test_products_in_mx_formats_and_of_two_types(
    invoke: Callable[..., Any], device: Any, types: str, layout: str
) -> None:
    if device.target not in ("gfx942", "gfx950"):
        pytest.skip("other devices multiply no 8-bit floats")
    result = invoke("33x32x68", "--dtype", types, "--layout", layout, "--json")
    assert counted(result) >= 2 * 33 * 32 * 68


@pytest.mark.slow
def test_precisions_and_types_of_the_result(invoke: Callable[..., Any], device: Any) -> None:
    if not device.emulated:
        pytest.skip("profiles need the emulated device")
    words = ("16x16x32", "--dtype", "bf16", "--result-dtype", "fp32", "--json")
    (kernel,) = json.loads(invoke(*words).output)["kernels"]
    assert kernel["global_memory"]["bytes_written"] == 4 * 16 * 16
    given = ("--dtype", "fp64", "--precision", "int8x8", "--json")
    assert counted(invoke("16x16x32", *given)) >= 8 * 2 * 16 * 16 * 32


@pytest.mark.slow
@pytest.mark.parametrize("scales", ["tensor,row", "1x32,32x32"])
def test_products_with_scales(invoke: Callable[..., Any], device: Any, scales: str) -> None:
    """Scales along k are applied to the sums of each block; others to the result."""
    if device.target not in ("gfx942", "gfx950"):
        pytest.skip("other devices multiply no 8-bit floats")
    dtype = "e4m3fnuz" if device.target == "gfx942" else "e4m3fn"
    words = ("33x32x64", "--dtype", dtype, "--layout", "NT", "--json")
    scaled, plain = invoke(*words, "--scales", scales), invoke(*words)
    assert counted(scaled) >= 2 * 33 * 32 * 64

    def read(result: Any) -> int:
        kernels = json.loads(result.output)["kernels"]
        return int(sum(kernel["global_memory"]["bytes_read"] for kernel in kernels))

    assert read(scaled) > read(plain)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("8x8x64 --scales 1x32,1x64", "write tensor, row, 1x128 or 128x128"),
        ("8x8x64 --scales 2x32", "write tensor, row, 1x128 or 128x128"),
        ("2x8x8x64 --scales row", "is not (m, n, k)"),
        ("8x8x64 --dtype mxfp4 --scales row", "the MX format mxfp4 has its own scales"),
    ],
)
def test_scales_that_there_are_not(
    invoke: Callable[..., Any], device: Any, words: str, message: str
) -> None:
    if not device.emulated:
        pytest.skip("profiles need the emulated device")
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert message in result.output


def test_the_loop_of_a_product_in_an_mx_format(invoke: Callable[..., Any], device: Any) -> None:
    if device.target != "gfx950":
        pytest.skip("other devices decode MX formats")
    result = invoke("256x256x256", "--dtype", "mxfp4", "--loop")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("main loop of cupygemm_gemm for gfx950")


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float8_e4m3fn"])
def test_operands_lie_as_the_layout_says(cp: Any, dtype: str, layout: str) -> None:
    (product,) = products_of("profile", [(2, 7, 8, 9)], [dtype], None, [layout])
    made = arrays(product.shape, product.dtype, layout)
    for array, described in zip(made, product.operands(), strict=True):
        assert (array.shape, array.strides) == (described.shape, described.strides)
        assert array.dtype == described.dtype == product.dtype


def test_a_shape_in_one_word_and_in_three(invoke: Callable[..., Any], device: Any) -> None:
    if not device.emulated:
        pytest.skip("products are profiled on the emulated device")
    one = json.loads(invoke("48x32x64", "--dtype", "fp16", "--json").output)
    three = json.loads(invoke("48", "32", "64", "--dtype", "fp16", "--json").output)
    (first,), (second,) = one["kernels"], three["kernels"]
    assert first["instructions"] == second["instructions"]


def test_a_fault_is_reported(invoke: Callable[..., Any]) -> None:
    result = invoke(build(SOURCE), "--grid", "4", "--args", "i32:256 f32:1 f32[250] f32[256]")
    assert result.exit_code == 1
    assert "out-of-bounds global read" in result.output
    assert "argument 2" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["4", "4"], "cannot profile 4 4: name a shape such as 512x512x512, or the path"),
        (["4x4x4", "5x5x5", "6x6x6"], "cannot profile 4x4x4 5x5x5 6x6x6: name a shape"),
        (["4x4x4", "5"], "cannot profile 4x4x4 5: name a shape"),
        (["no.hip", "--args", "f32[8]", "i32:7"], "cannot profile i32:7: if it is an argument"),
        (["0", "4", "4"], "the shape (0, 4, 4) is not (m, n, k), or (batch, m, n, k), of 1 or"),
        (["4x4"], "the shape (4, 4) is not (m, n, k)"),
        (["4", "4", "4", "--dtype", "fp12"], "'fp12' is not a type; write one of bf16, fp16, fp32"),
        (["4x4x4", "--layout", "NX"], "layout must be one of NN, NT, TN, TT (got 'NX')"),
        (["no.hsaco", "--layout", "NT"], "--layout is an option of a matrix product"),
        (["4", "4", "4", "--grid", "1"], "--grid is an option of a code object"),
        (["no.hsaco"], "No such file"),
        (["no.hsaco", "--dtype", "bf16"], "--dtype is an option of a matrix product"),
        ([str(Path(__file__).parents[2] / "README.md")], "not an ELF file"),
        (["no.hsaco", "--options=-O2"], "--options are for the compiler, but no.hsaco is already"),
        (["no.hip"], "No such file"),
        (["no.py", "--grid", "4"], "--grid is an option of one product or kernel"),
        (["no.py", "--loop"], "--loop counts the loop of one kernel"),
        (["no.py", "--result-dtype", "fp32"], "--result-dtype is an option of one product"),
        (["no.hip", "no.hip", "--loop"], "--timeline are for one subject, not for a comparison"),
        (["no.hip", "--timeline", "x.png", "--cycles", "9"], "--cycles 9: write FIRST:LAST"),
    ],
)
def test_what_cannot_be_profiled(
    invoke: Callable[..., Any], arguments: list[str], message: str
) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("i32:1", "add takes 4 arguments, not 1: 4 bytes by value, 4 bytes by value, a pointer"),
        ("i64:1 f32:1 f32[1] f32[1]", "argument 0 of add has 4 bytes, not 8"),
        ("x", "write TYPE:VALUE"),
        ("4096", "such as i32:4096 or"),
    ],
)
def test_arguments_that_do_not_fit(invoke: Callable[..., Any], words: str, message: str) -> None:
    result = invoke(build(SOURCE), "--args", words)
    assert result.exit_code == 2
    assert message in result.output


def test_an_error_names_the_source(invoke: Callable[..., Any], tmp_path: Path) -> None:
    """Not the code object that it is compiled to."""
    source = tmp_path / "add.hip"
    source.write_text(SOURCE)
    result = invoke(str(source), "--args", "i32:1")
    assert result.exit_code == 2
    assert f"{source}: add takes 4 arguments, not 1: n (4 bytes by value), " in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--clock", "-3"), "clock_mhz=-3.0"),
        (("--timeline", "x.png", "--cycles", "9:3"), "cycles 9 to 3"),
    ],
)
def test_times_that_cannot_be_modelled(
    invoke: Callable[..., Any], words: tuple[str, ...], message: str
) -> None:
    result = invoke(build(SOURCE), *ADD, *words)
    assert result.exit_code == 2
    assert message in result.output


def test_calibration(invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    case = Figure(
        group="reads", name="b32", unit="cycles", published=500, source="someone", modelled=550
    )
    figures = [case]
    monkeypatch.setattr(calibration, "figures", lambda: iter(figures))
    result = invoke("--calibration")
    assert result.exit_code == 0, result.output
    assert "+10.0%" in result.output
    assert json.loads(invoke("--calibration", "--json").output)["calibration"][0]["modelled"] == 550
    result = invoke("4", "4", "4", "--calibration")
    assert result.exit_code == 2
    assert "--calibration runs kernels of its own" in result.output


def test_arguments() -> None:
    assert parse_argument("i32:-5") == np.int32(-5)
    assert parse_argument("u8:0x1f").dtype == np.uint8
    assert parse_argument("f16:0.5").tobytes() == np.float16(0.5).tobytes()
    np.testing.assert_array_equal(parse_argument("i16[3]"), np.zeros(3, np.int16))
    np.testing.assert_array_equal(parse_argument("f64[2]=ones"), np.ones(2))
    np.testing.assert_array_equal(parse_argument("i64[3]=arange"), [0, 1, 2])
    random = parse_argument("bf16[100]=random").astype(np.float32)
    assert -1 <= random.min() < random.max() <= 1
    first, (x, (count, rate)), () = parse_arguments("i32:1 {f32[2] {i64:3 f32:4}} {}")
    assert (first, x.size, count, rate, rate.dtype) == (1, 2, 3, 4, np.float32)
    for wrong in ("{i32:1", "i32:1}"):
        with pytest.raises(ValueError, match="brace has no"):
            parse_arguments(wrong)
    assert parse_extent("5") == (5, 1, 1)
    assert parse_extent("5,6,7") == (5, 6, 7)


@pytest.mark.parametrize(
    "text", ["i32", "i32:", "i32:1.5", "u8:256", "f31:1", "f32[0]", "f32[4]=twos", "f32[-1]"]
)
def test_wrong_arguments(text: str) -> None:
    with pytest.raises(ValueError, match="argument"):
        parse_argument(text)


@pytest.mark.parametrize("text", ["", "0", "1,2,3,4", "1,,2", "-1", "x", "9999999999"])
def test_wrong_extents(text: str) -> None:
    with pytest.raises(ValueError, match=r"extents|integers"):
        parse_extent(text)


MULTIPLY = """\
typedef float f32x4 __attribute__((ext_vector_type(4)));
KERNEL multiply(int n, const float* x, float* y) {
    f32x4 sum = {};
    int lane = __builtin_amdgcn_workitem_id_x();
    for (int i = 0; i < n; ++i)
        sum = __builtin_amdgcn_mfma_f32_16x16x4f32(x[64 * i + lane], 1, sum, 0, 0, 0);
    y[lane] = sum[0] + sum[1] + sum[2] + sum[3];
}
"""


def test_the_loop_of_a_code_object(invoke: Callable[..., Any]) -> None:
    path = build(SOURCE + MULTIPLY)
    result = invoke(path, "--loop", "--kernel", "multiply", "--block", "64", "--json")
    assert result.exit_code == 0, result.output
    loop = json.loads(result.output)
    assert (loop["kernel"], loop["threads"]) == ("multiply", 64)
    assert loop["mfma_cycles"] == 32 * loop["mfma"] > 0
    assert loop["instructions"]["VMEM"] == loop["mfma"]
    assert "MFMA issue efficiency" in invoke(path, "--loop", "--kernel", "multiply").output
    for options, words in (
        (("--loop",), "has no kernel None; its kernels: add, multiply"),
        (("--loop", "--kernel", "add"), "the kernel has no loop: there is nothing to count"),
        (("--loop", "--grid", "4"), "--grid is an option of a launch"),
        (("--loop", "--listing"), "--loop counts only a loop"),
    ):
        result = invoke(path, *options)
        assert result.exit_code == 2
        assert words in result.output


@pytest.mark.parametrize(("columns", "width"), [(60, 80), (80, 80), (200, 130)])
def test_text_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, cp: Any, columns: int, width: int
) -> None:
    """Two kernels have a table of both above their own, and notes that fill the lines."""
    terminal = Console(width=columns, force_terminal=True)
    monkeypatch.setattr(_terminal, "Console", lambda **_: terminal)
    assert _terminal.line_width() == width
    x = cp.ones((64, 64), "float32")
    with emulator.profile() as p:
        (x + x).sum()
    lines = p.to_text(width).splitlines()
    assert lines[0] == "Kernels"
    assert ("vL1D req" in lines[1]) == (width == 130)
    assert width - 20 < max(map(len, lines)) <= width
