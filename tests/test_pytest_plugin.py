"""The pytest plugin, in an environment without this checkout, on a separate suite."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from tests.environments import Environment

CONFTEST = "import cupy  # without a GPU or a device, this fails\n"
SUITE = """
import unittest

import cupy as cp
import numpy
import pytest

BEYOND = cp.RawKernel(
    'extern "C" __global__ void beyond(int* x) { x[threadIdx.x + 8] = 3; }', "beyond"
)


def launch(threads):
    BEYOND((1,), (threads,), (cp.zeros(64, "i4"),))


def test_right():
    launch(56)
    assert (cp.arange(5) * 2).sum() == 20


def test_faulty():
    launch(64)


def test_that_catches_the_exception():
    with pytest.raises(Exception):
        launch(64)


def test_that_skips_because_of_it():
    try:
        launch(64)
    except Exception:
        pytest.skip("the device cannot do it")


def test_that_skips():
    pytest.skip("no reason")


@pytest.mark.xfail(strict=True)
def test_expected_to_fail():
    launch(64)


class TestOld(unittest.TestCase):
    def test_that_catches_the_exception(self):
        with self.assertRaises(Exception):
            launch(64)


@pytest.fixture
def careless():
    try:
        launch(64)
    except Exception:
        pass


def test_with_a_careless_fixture(careless):
    pass


def test_numpy_only():
    assert numpy.arange(3).sum() == 3
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    shared = Environment.shared(tmp_path_factory)
    found = replace(shared, folder=tmp_path_factory.mktemp("suites"))
    (found.folder / "suite").mkdir()
    (found.folder / "suite" / "conftest.py").write_text(CONFTEST)
    (found.folder / "suite" / "test_suite.py").write_text(SUITE)
    return found


def run(environment: Environment, *options: str) -> subprocess.CompletedProcess[str]:
    common = ("-m", "pytest", "-p", "no:cacheprovider", "-rA", "suite")
    return environment.run(*common, *options)


def outcomes(text: str) -> dict[str, str]:
    found = re.findall(r"^(\w+) (?:\[\d\] )?suite/test_suite.py::([\w:]+)", text, re.MULTILINE)
    return {name: outcome for outcome, name in found}


EXPECTED = {
    "test_right": "PASSED",
    "test_faulty": "FAILED",
    "test_that_catches_the_exception": "FAILED",
    "test_that_skips_because_of_it": "FAILED",
    "test_expected_to_fail": "XFAIL",
    "TestOld::test_that_catches_the_exception": "FAILED",
    "test_with_a_careless_fixture": "ERROR",
    "test_numpy_only": "PASSED",
}


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "xdist"])
def test_tests_with_faults_fail(environment: Environment, options: tuple[str, ...]) -> None:
    process = run(environment, "--cupygemm-emulate=gfx950", *options)
    assert outcomes(process.stdout) == EXPECTED, process.stdout + process.stderr
    assert process.returncode == 1
    if not options:
        assert "cupygemm: CuPy runs on an emulated gfx950" in process.stdout
    assert "1 fault in kernels of this test:" in process.stdout
    assert "argument 0 (x) points into it" in process.stdout


@pytest.mark.slow
def test_checks_can_be_chosen(environment: Environment) -> None:
    chosen = ("--cupygemm-emulate=gfx942", "--cupygemm-checks=bounds=warn")
    process = run(environment, *chosen, "-k", "faulty or right")
    assert outcomes(process.stdout) == {"test_right": "PASSED", "test_faulty": "PASSED"}
    assert "KernelWarning: 1 finding in kernel beyond" in process.stdout


@pytest.mark.slow
def test_without_the_option_the_plugin_imports_nothing(environment: Environment) -> None:
    suite = environment.folder / "plain"
    suite.mkdir()
    (suite / "test_plain.py").write_text(
        "import sys\ndef test_it(): assert 'cupygemm' not in sys.modules\n"
    )
    process = environment.run("-m", "pytest", "-p", "no:cacheprovider", "plain")
    assert process.returncode == 0, process.stdout
    assert "1 passed" in process.stdout


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "--cupygemm-emulate=gfx1100",
            "target 'gfx1100' cannot be emulated; use one of gfx90a",
        ),
        ("--cupygemm-checks=bounds=off", "--cupygemm-checks needs --cupygemm-emulate"),
        ("--cupygemm-stream-order=1", "--cupygemm-stream-order needs --cupygemm-emulate"),
    ],
)
def test_wrong_options_are_named(environment: Environment, option: str, message: str) -> None:
    process = run(environment, option)
    assert process.returncode == pytest.ExitCode.USAGE_ERROR
    assert message in process.stderr


@pytest.mark.slow
def test_wrong_checks_are_named(environment: Environment) -> None:
    process = run(environment, "--cupygemm-emulate=gfx942", "--cupygemm-checks=bound=off")
    assert process.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no check 'bound'" in process.stderr
