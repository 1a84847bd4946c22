"""The command line: ``python -m cupygemm demo``, ``info``, ``check``, ``profile``, ``tune``..."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Collection
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
from cupygemm._commands.terminal import Json, console, start_device
from cupygemm._version import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Matrix products and solvers for CuPy arrays, and an emulated GPU to run, check and "
    "profile kernels on.",
)


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
        if emulated:
            terminal.print("No GPU is used: the processor executes the GPU code of the kernels.")
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
        verdict = f"all {len(outcomes)} products are within their bounds"
        if wrong:
            verdict = f"{wrong} of {len(outcomes)} products exceed their bound"
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


_LEGEND = {
    "shape": "m x n x k of an (m, k) by (k, n) product, after the extents of a stack",
    "layout": "memory order of each operand, or what is special about them",
    "kernel": "its configuration, which begins with the tile m x n x k of a workgroup",
    "error": "the one nearest to its bound; the reference is NumPy's product in float64",
    "time": "of a repeated call",
    "MFMA": "matrix instructions that the waves executed; next, all their instructions",
}
_NARROWER = ((), ("kernel",), ("kernel", "MFMA", "instructions"))
"""The columns that are left out, the fewest that let the table fit the terminal."""


def _print_outcomes(console: Console, outcomes: list[Any], *, emulated: bool) -> None:
    wide = console.options.update(max_width=1000)
    for left_out in _NARROWER:
        table = _outcome_table(outcomes, left_out, emulated=emulated)
        if console.measure(table, options=wide).maximum <= console.width:
            break
    console.print(table)
    legend = Table(box=None, pad_edge=False, show_header=False)
    shown = {column.header for column in table.columns}
    for heading, meaning in _LEGEND.items():
        if heading in shown:
            note = "; of the emulation, so it says nothing about a GPU"
            legend.add_row(heading, meaning + note * (heading == "time" and emulated))
    console.print()
    console.print(legend)
    console.print()


def _outcome_table(outcomes: list[Any], left_out: Collection[str], *, emulated: bool) -> Table:
    """Return the table of the demonstration without the columns that are left out."""
    table = Table(box=None, pad_edge=False)
    rows = []
    for outcome in outcomes:
        row = {
            "shape": outcome.shape,
            "dtype": outcome.dtype,
            "layout": outcome.layout,
            "kernel": outcome.config,
            "error": f"{outcome.error:.2e}" + " !" * (not outcome.ok),
            "bound": f"{outcome.bound:.2e}",
            "time": _duration(outcome.seconds),
        }
        if emulated:
            row |= {"MFMA": f"{outcome.mfma:,}", "instructions": f"{outcome.instructions:,}"}
        rows.append({heading: cell for heading, cell in row.items() if heading not in left_out})
    for heading in rows[0]:
        of_text = heading in ("shape", "dtype", "layout", "kernel")
        table.add_column(
            heading,
            justify="left" if of_text else "right",
            overflow="fold",
            no_wrap=not of_text,
        )
    for row in rows:
        table.add_row(*row.values())
    return table


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
