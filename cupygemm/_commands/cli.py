"""The command line: ``python -m cupygemm demo``, ``info``, ``check``, ``profile``, ``tune``..."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
    from rich.table import Table
except ModuleNotFoundError as err:
    raise SystemExit(
        f'cupygemm: the command line needs {err.name}: pip install "cupygemm[emulator]", or '
        "[rocm] or [cuda] for a GPU"
    ) from err

from cupygemm._commands import check as _check_command
from cupygemm._commands import info as _info
from cupygemm._commands import profile as _profile_command
from cupygemm._commands import tune as _tune_commands
from cupygemm._commands.terminal import console, start_device
from cupygemm._version import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The matrix product on CuPy arrays.",
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def main() -> None:
    """Run the command line."""
    app(prog_name="cupygemm")


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cupygemm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def demo(as_json: Json = False) -> None:
    """Multiply CuPy arrays on the best available device and check the results.

    The device is a ROCm GPU, else a CUDA GPU, else the emulated device. Each product is compared
    with NumPy's product in float64. The exit status is 1 if an error exceeds its bound, and 2 if
    there is no device.
    """
    from cupygemm import emulator

    start = time.perf_counter()
    try:
        device = start_device(build_ahead=True)
    except (RuntimeError, ImportError) as err:
        typer.echo(f"cupygemm demo: {err}", err=True)
        raise typer.Exit(2) from err
    from cupygemm._commands import demo as _demo

    emulated = emulator.is_enabled()
    terminal = console(stderr=as_json)
    if not as_json:
        terminal.print(f"cupygemm {__version__} on {device}")
    outcomes = []
    with terminal.status("multiplying") as status:
        for outcome in _demo.run_cases():
            outcomes.append(outcome)
            status.update(f"multiplying: {len(outcomes)} of {len(_demo.CASES)} products done")
    ok = all(outcome.ok for outcome in outcomes)
    seconds = time.perf_counter() - start
    if as_json:
        report = {
            "version": __version__,
            "device": device,
            "emulated": emulated,
            "ok": ok,
            "seconds": seconds,
            "products": [dataclasses.asdict(outcome) | {"ok": outcome.ok} for outcome in outcomes],
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        _print_outcomes(terminal, outcomes, emulated=emulated)
        wrong = sum(not outcome.ok for outcome in outcomes)
        verdict = (
            f"{wrong} of {len(outcomes)} products exceed their bound"
            if wrong
            else (f"all {len(outcomes)} products are within their bounds")
        )
        terminal.print(f"{verdict} ({seconds:.1f} s)")
    raise typer.Exit(0 if ok else 1)


@app.command()
def info(as_json: Json = False) -> None:
    """Print the versions, devices, compilers and cache that cupygemm finds."""
    try:
        account = _info.collect()
    except RuntimeError as err:
        typer.echo(f"cupygemm info: {err}", err=True)
        raise typer.Exit(2) from err
    if as_json:
        typer.echo(json.dumps(account, indent=2))
        return
    terminal = console()
    for title, rows in _info_rows(account).items():
        table = Table(
            title=title, title_justify="left", show_header=False, box=None, pad_edge=False
        )
        for row in rows:
            table.add_row("", *row)
        terminal.print(table)


app.command(context_settings=_check_command.CONTEXT)(_check_command.check)
app.command()(_profile_command.profile)
app.command()(_tune_commands.warmup)
app.command()(_tune_commands.tune)


def _print_outcomes(console: Console, outcomes: list[Any], *, emulated: bool) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("shape", "dtype", "layout", "kernel"):
        table.add_column(heading, overflow="fold")
    for heading in ("error", "bound", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    if emulated:
        table.add_column("MFMA", justify="right", no_wrap=True)
        table.add_column("instructions", justify="right", no_wrap=True)
    for outcome in outcomes:
        mark = "" if outcome.ok else " !"
        row = [outcome.shape, outcome.dtype, outcome.layout, outcome.config]
        row += [f"{outcome.error:.2e}{mark}", f"{outcome.bound:.2e}", _duration(outcome.seconds)]
        if emulated:
            row += [f"{outcome.mfma:,}", f"{outcome.instructions:,}"]
        table.add_row(*row)
    console.print(table)
    console.print(
        "error and bound: absolute, of the element whose error is closest to its bound"
        + ("; time: of the emulation, not of a GPU" if emulated else "")
    )


def _duration(seconds: float) -> str:
    for unit, scale in (("s", 1), ("ms", 1e3)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e6:.1f} us"


def _tuned_products(counts: dict[str, int]) -> str:
    """Return the number of products that `tune` has measured, by device."""
    return ", ".join(f"{count} products on {name}" for name, count in counts.items()) or "nothing"


def _info_rows(account: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return what `info` collected as rows of text under titles."""
    emulation = account["emulator"]
    variable = emulation["CUPYGEMM_EMULATE"]
    cache = account["cache"]
    return {
        "Versions": list(account["versions"].items()),
        "Devices": [
            (entry["kind"], ("usable: " if entry["usable"] else "not usable: ") + entry["what"])
            for entry in account["devices"]
        ],
        "Emulator": [
            ("enabled", emulation["enabled"] or "no"),
            (
                "CUPYGEMM_EMULATE",
                variable or f"not set (the default target is {emulation['default']})",
            ),
        ],
        "Compilers": [
            (
                f"{entry['name']} (used)" if entry["used"] else entry["name"],
                entry.get("missing") or f"{entry['version']}, {entry['path']}",
            )
            for entry in account["compilers"]
        ],
        "Cache": [
            ("directory", cache["directory"]),
            ("holds", f"{cache['files']} files, {cache['bytes'] / 2**20:.1f} MiB"),
            ("tuned", _tuned_products(cache["tuned"])),
        ],
    }
