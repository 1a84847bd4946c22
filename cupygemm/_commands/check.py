"""``python -m cupygemm check``: run a CuPy program on the emulated device and report its faults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from cupygemm._commands import detect as _detect
from cupygemm._commands.scripts import emulated_children, run_program, target_of_program
from cupygemm._commands.severities import Error, Off, Warn, severities

if TYPE_CHECKING:
    from cupygemm.emulator.diagnostics.findings import Observed

CONTEXT = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def check(
    program: Annotated[str, typer.Argument(help="The program: a script, or a module with -m.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The program's own arguments.")
    ] = None,
    module: Annotated[bool, typer.Option("-m", help="The program is a module.")] = False,
    target: Annotated[
        str | None,
        typer.Option(help="The target to emulate.", show_default=_detect.DEFAULT_TARGET),
    ] = None,
    error: Error = None,
    warn: Warn = None,
    off: Off = None,
    stream_order: Annotated[
        str | None,
        typer.Option(
            metavar="SEED",
            help="Let the work of streams interleave in an order that a number chooses.",
        ),
    ] = None,
    wave_order: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            help="Run the waves of a launch in another order: abreast, forward, reverse, or a "
            "number for a random one. A result whose bits change depends on it.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Write nothing if no fault was found.")
    ] = False,
) -> None:
    """Run a CuPy program on the emulated device, which reports what its kernels do wrong.

    The exit status is 1 if a kernel had a fault, also if the program caught the error, and 2 if the
    device or the program cannot be started. Otherwise it is the program's own. The reports, and at
    the end a line on what was checked, go to stderr.
    """
    from cupygemm import emulator
    from cupygemm.emulator._session import finish_streams, use_stream_order
    from cupygemm.emulator.concurrency.stream_deferral import VARIABLE, seed_of
    from cupygemm.emulator.diagnostics import findings
    from cupygemm.emulator.execution import wave_order as orders

    if not module and program.startswith("-"):
        raise typer.BadParameter(f"check has no option {program}", param_hint="program")
    try:
        if wave_order is not None:
            orders.order_of(wave_order, "--wave-order ")
            os.environ[orders.VARIABLE] = wave_order
        if stream_order is not None:
            seed_of(stream_order, "--stream-order")
        with severities(error, warn, off), findings.observing() as seen:
            if stream_order is not None:
                os.environ[VARIABLE] = stream_order  # inherited by the program's child processes
            name = target_of_program(target)
            emulator.enable(name)
            if stream_order is not None:  # the device may have been enabled before
                use_stream_order(stream_order)
            with emulated_children(name):
                status = run_program(program, arguments or [], module=module)
            finish_streams(is_end=True)
    except (RuntimeError, ValueError, OSError) as err:
        typer.echo(f"cupygemm check: {err}", err=True)
        raise typer.Exit(2) from err
    reports = list(dict.fromkeys(map(str, seen.errors)))
    warned = len(set(map(str, seen.warnings)))
    for report in reports:
        typer.echo(f"\ncupygemm check: {report}", err=True)
    if reports or warned:
        counts = f"{_count(len(reports), 'fault')} and {_count(warned, 'warning')}"
        typer.echo(f"\ncupygemm check: {counts} on the emulated {emulator.target()}", err=True)
    elif not quiet:
        typer.echo(f"cupygemm check: {_clean(seen, emulator.target(), status)}", err=True)
    raise typer.Exit(1 if reports else status)


def _clean(seen: Observed, target: str | None, status: int) -> str:
    """Return the last line of a run without faults."""
    if not seen.launches:
        return "no kernel was launched"
    ended = f"; the program ended with exit status {status}" * bool(status)
    return f"no fault found in {seen.checked()} on the emulated {target}{ended}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
