"""The commands ``warmup`` and ``tune``: what they do, print and refuse."""

import json

import pytest
from typer.testing import CliRunner

from cupygemm._backends.cdna import compile as _compile
from cupygemm._commands import cli as _cli
from cupygemm._plan import winners as _tuned
from cupygemm._tuning import tune as _tune


@pytest.fixture
def invoke(cp):
    """Return a function that runs a command line and returns its result."""
    return lambda *arguments: CliRunner().invoke(_cli.app, arguments)


@pytest.mark.slow  # compiles into an empty cache, in a process of its own
def test_warmup_compiles_into_the_cache(run_python, tmp_path):
    """The command names the target, as a user does who prepares a container."""
    code = "import sys; sys.argv = {}; import cupygemm.__main__"
    arguments = [
        "cupygemm",
        "warmup",
        "40x50x64",
        "2x40x50x64",
        "--dtype",
        "fp16",
        "--dtype",
        "fp32",
        "--layout",
        "NT",
        "--target",
        "gfx90a",
        "--json",
    ]
    report = json.loads(
        run_python(code.format(arguments), env={"CUPYGEMM_CACHE_DIR": str(tmp_path)})
    )
    assert report["device"] == "gfx90a (emulated)"
    assert (report["products"], report["with_a_kernel"]) == (4, 4)
    assert report["cache"] == str(tmp_path)
    kernels = list(tmp_path.glob("hsaco/*/*.hsaco"))
    assert 2 <= len(kernels) <= 4
    assert all(b"gfx90a" in kernel.read_bytes() for kernel in kernels)


def test_warmup_says_what_has_no_kernel(invoke, device):
    result = invoke("warmup", "4x5x6", "--dtype", "fp16", "--dtype", "int32", "--workers", "1")
    assert result.exit_code == 0, result.output
    made = 1 if device.has_kernels else 0
    assert f"{made} of 2 products have a kernel" in result.output
    assert f"; {2 - made} are left to CuPy" in result.output


def test_tune_prints_what_it_found(invoke, device, monkeypatch):
    kept = []
    monkeypatch.setattr(_tuned, "record", lambda *found: kept.append(found))
    report = json.loads(
        invoke("tune", "64x64x64", "--dtype", "fp16", "--candidates", "3", "--json").stdout
    )
    if not device.has_kernels:
        assert report["products"] == []
        return
    (product,) = report["products"]
    kind, unit = ("modelled", "cycles") if device.emulated else ("measured", "microseconds")
    assert (product["product"], product["kind"]) == ("64x64x64 float16 NN", kind)
    figures = [figure[unit] for figure in product["figures"]]
    assert 0 < figures[0] <= figures[1] <= figures[2]
    assert len(kept) == (0 if device.emulated else 1)
    lines = invoke("tune", "64x64x64", "--dtype", "fp16", "--candidates", "2").output.splitlines()
    assert kind in lines[0]
    assert unit in lines[1]
    if device.emulated:
        assert len(lines) == 4
        assert product["figures"][0]["config"] in lines[2]


def test_tune_tells_of_figures_that_were_measured(invoke, device, monkeypatch):
    """A GPU's figures, by a stand-in for the measurement."""

    class Config:
        summary = "tile 1x1x1"

    found = [_tune.Tuned("1x1x1 float16 NN", "a GPU", "measured", ((Config, 1234.5),))]
    monkeypatch.setattr(_tune, "tune", lambda *_, **__: found)
    output = invoke("tune", "1x1x1", "2x2x2").output
    assert "1,234.5  tile 1x1x1" in output
    assert "1 of 2 products have no kernel" in output
    assert "the first of each is used from now on" in output


@pytest.mark.parametrize("command", ["warmup", "tune"])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("4x5",), "the shape (4, 5) is not (m, n, k)"),
        (("4x5xk",), "the shape '4x5xk' is not MxNxK"),
        (
            ("4x5x6", "--dtype", "fp15"),
            "'fp15' is not a type; write one of bf16, fp16, fp32, fp64, e4m3fn",
        ),
        (("4x5x6", "--layout", "NX"), "layout must be one of NN, NT, TN, TT (got 'NX')"),
        (("4x5x6", "--target", "gfx1100"), "gfx1100"),
    ],
)
def test_what_is_refused(invoke, monkeypatch, command, arguments, text):
    monkeypatch.setattr(_compile, "compile_kernel", None)  # is not reached
    result = invoke(command, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"cupygemm {command}: ")
    assert text in result.stderr
    assert not result.stdout


@pytest.mark.parametrize("command", ["warmup", "tune"])
def test_help_has_an_example(invoke, command):
    output = invoke(command, "--help").output
    assert f"$ python -m cupygemm {command} 4096x4096x4096" in output
