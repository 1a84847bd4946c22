"""A pytest plugin that runs any CuPy-based suite on the emulated device and checks its kernels.

``pytest --cupygemm-emulate=gfx942`` enables the device before the first ``conftest.py`` is
imported. A test fails if one of its launches has a fault, also if the test caught the exception.
Without the option the plugin does nothing, and imports nothing of cupygemm.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("cupygemm", "the emulated CDNA device of cupygemm")
    group.addoption(
        "--cupygemm-emulate",
        metavar="TARGET",
        help="run CuPy on an emulated AMD GPU, for example gfx942 (MI300X), and fail each test "
        "whose launches have a fault",
    )
    group.addoption(
        "--cupygemm-checks",
        metavar="NAME=SEVERITY,...",
        help="the severities (error, warn, off) of checks of the emulated device",
    )
    group.addoption(
        "--cupygemm-stream-order",
        metavar="SEED",
        help="let the work of different streams interleave in an order that a number chooses",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Enable the device before any module of the suite is imported."""
    options = early_config.known_args_namespace
    if options.cupygemm_emulate is None:
        for option in ("checks", "stream_order"):
            if getattr(options, f"cupygemm_{option}") is not None:
                name = option.replace("_", "-")
                raise pytest.UsageError(f"--cupygemm-{name} needs --cupygemm-emulate")
        return
    # The processes that tests start inherit the variables.
    os.environ["CUPYGEMM_EMULATE"] = options.cupygemm_emulate
    if options.cupygemm_checks is not None:
        os.environ["CUPYGEMM_EMULATE_CHECKS"] = options.cupygemm_checks
    if options.cupygemm_stream_order is not None:
        os.environ["CUPYGEMM_EMULATE_STREAM_ORDER"] = options.cupygemm_stream_order
    try:
        from cupygemm import emulator
        from cupygemm.emulator.diagnostics import checking

        emulator.enable(options.cupygemm_emulate)
        checking.policy()
    except (ImportError, RuntimeError, ValueError) as err:
        raise pytest.UsageError(f"--cupygemm-emulate={options.cupygemm_emulate}: {err}") from err


def pytest_configure(config: pytest.Config) -> None:
    """Check the launches of each test."""
    if config.getoption("cupygemm_emulate") is not None:
        config.pluginmanager.register(_Faults(), "cupygemm-faults")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the device in the header."""
    target = config.getoption("cupygemm_emulate")
    return None if target is None else f"cupygemm: CuPy runs on an emulated {target}"


class _Faults:
    """Fails the tests whose launches have faults, in each of their three phases."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from _checked(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        return (yield from _checked(item, "call"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        from cupygemm.emulator._session import finish_streams

        try:
            return (yield from _checked(item, "teardown"))
        finally:
            finish_streams()


def _checked(item: pytest.Item, phase: str) -> Generator[None, Any, Any]:
    """Run a phase of a test; fail it if a launch had a fault and the phase itself passed."""
    from cupygemm.emulator.concurrency.stream_deferral import run_deferred
    from cupygemm.emulator.diagnostics.findings import observing

    with observing() as seen:
        try:
            result = yield
            run_deferred()
        except pytest.skip.Exception:
            if not seen.errors:
                raise
        except BaseException:
            if seen.errors:
                item.add_report_section(phase, "faults on the emulated device", _text(seen.errors))
            raise
        if not seen.errors:
            return result
    return pytest.fail(_text(seen.errors), pytrace=False)


def _text(errors: list[Any]) -> str:
    """Return the reports of faults without duplicates."""
    reports = dict.fromkeys(map(str, errors))
    count = f"{len(reports)} fault{'s' * (len(reports) != 1)}"
    return "\n\n".join([f"{count} in kernels of this test:", *reports])
