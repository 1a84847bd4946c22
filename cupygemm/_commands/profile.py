"""``python -m cupygemm profile``: count what an emulated product, kernel or program does."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cupygemm._commands import detect as _detect
from cupygemm._commands.products import DTYPES_HELP, SCALES_HELP, profile_product
from cupygemm._commands.programs import SOURCES, code_object_of, profile_script
from cupygemm._commands.severities import Error, Off, Warn, severities
from cupygemm._commands.terminal import Json, line_width
from cupygemm._commands.words import LAYOUT_HELP, is_shape, parse_shape

if TYPE_CHECKING:
    from cupygemm.emulator.profiling.compare import Comparison
    from cupygemm.emulator.profiling.loop import LoopProfile

_CODE_OBJECT = ("kernel", "grid", "block", "lds", "args")
_PRODUCT = ("dtype", "layout", "precision", "result_dtype", "scales")


def profile(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="The shape of a product, MxNxK or BATCHxMxNxK (M N K also works); or the path of "
            "a code object, of HIP source (.hip, .cpp, .cu) or of a Python program (.py). Two of "
            "them are compared."
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help=f"The type of the operands: {DTYPES_HELP}", show_default="bf16"),
    ] = None,
    layout: Annotated[str | None, typer.Option(help=LAYOUT_HELP, show_default="NN")] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="How float32 or float64 is multiplied: tf32, tf32x3, int8x8, ..."),
    ] = None,
    result_dtype: Annotated[
        str | None,
        typer.Option(help="The type of the result.", show_default="as matmul chooses"),
    ] = None,
    scales: Annotated[str | None, typer.Option(help=SCALES_HELP, show_default="none")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The target to emulate for a product, source or a program.",
            show_default=_detect.DEFAULT_TARGET,
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="The kernel, if a code object has several.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            help="Workgroups: X, X,Y or X,Y,Z. This, --block and --lds may be given twice, the "
            "second time for the second kernel of a comparison.",
            show_default="1",
        ),
    ] = None,
    block: Annotated[
        list[str] | None,
        typer.Option(help="Work-items of a workgroup, in the same form.", show_default="64"),
    ] = None,
    lds: Annotated[
        list[int] | None, typer.Option(help="Bytes of dynamic LDS.", min=0, show_default="0")
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Option(
            help="The kernel's arguments, separated by spaces. A scalar is TYPE:VALUE (i32:1000). "
            "A buffer is TYPE[COUNT], which holds zeros, or TYPE[COUNT]=FILL, where FILL is ones, "
            "arange or random. {ARG ARG ...} is a struct by value. The arguments of a Python "
            "program are plain words. Given twice, the second is for the second kernel of a "
            "comparison."
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            help="The compiler's options for HIP source, as in '-O2 -DTILE=64'. Given twice, the "
            "second is for the second kernel of a comparison."
        ),
    ] = None,
    as_json: Json = False,
    listing: Annotated[
        bool, typer.Option("--listing", help="Print the annotated disassembly too.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--source", help="Print the source lines too, if compiled with -g.")
    ] = False,
    loop: Annotated[
        bool,
        typer.Option(
            "--loop",
            help="Count one iteration of the main loop instead. A code object is not run for this, "
            "so it needs no arguments, and its bank conflicts are unknown.",
        ),
    ] = False,
    roofline: Annotated[
        Path | None, typer.Option(help="Save the roofline as a .png, .svg or .pdf file.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Save the modelled timeline of a compute unit as a picture.")
    ] = None,
    cycles: Annotated[
        str | None, typer.Option(help="The cycles that the timeline shows, as FIRST:LAST.")
    ] = None,
    clock: Annotated[
        float | None,
        typer.Option(help="The clock of modelled times, in MHz.", show_default="boost clock"),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Run so many workgroups of each launch, and scale its counts to the grid.",
            min=1,
            show_default="all",
        ),
    ] = None,
    error: Error = None,
    warn: Warn = None,
    off: Off = None,
    calibration: Annotated[
        bool,
        typer.Option("--calibration", help="Print published figures beside modelled ones instead."),
    ] = False,
) -> None:
    """Count what a product, a kernel or a program does on the emulated device.

    A profile begins with a verdict: what bounds the kernel, by how much, why, and what to try.
    Examples are a product of 8-bit floats whose second operand is a transposed view, a comparison
    of two versions of a kernel, and a CuPy program:

    $ python -m cupygemm profile 512x512x512 --dtype e4m3fnuz --layout NT

    $ python -m cupygemm profile a.hip b.hip --grid 304 --block 256 --args "f32[1000000] i32:7"

    $ python -m cupygemm profile program.py

    Instructions, waits, coalescing, cache hits, bank conflicts, registers and occupancy are
    computed from the code object or counted by emulation. Times and cycles are modelled; none is
    measured. The exit status is 1 if the kernel is at fault, and 2 if there is nothing to run.
    """
    from cupygemm.emulator.errors import EmulatorError, KernelFault, SourceFault

    given = {
        "dtype": dtype,
        "layout": layout,
        "precision": precision,
        "result_dtype": result_dtype,
        "scales": scales,
        "target": target,
        "kernel": kernel,
    }
    for_each = {"grid": grid, "block": block, "lds": lds, "args": args, "options": options}
    how = {"clock_mhz": clock, "sample": sample}
    collected: Any
    try:
        if calibration:
            _calibrate(what or [], as_json)
            return
        subjects = _subjects(what or [])
        if loop and (listing or source or roofline or timeline or clock or sample):
            raise ValueError(
                "--loop counts only a loop: it excludes --listing, --source, --roofline, "
                "--timeline, --clock and --sample"
            )
        if len(subjects) > 1 and (loop or listing or source or roofline or timeline):
            raise ValueError(
                "--loop, --listing, --source, --roofline and --timeline are for one subject, not "
                "for a comparison"
            )
        shown = _parse_cycles(cycles)
        with severities(error, warn, off):
            options_of = [
                given | {name: _nth(words, index) for name, words in for_each.items()}
                for index in range(len(subjects))
            ]
            found = [
                _collect(subject, each, how, loop=loop)
                for subject, each in zip(subjects, options_of, strict=True)
            ]
        collected = found[0] if len(found) == 1 else _compared(found, kernel)
        if roofline is not None:
            collected.roofline(roofline)
        if timeline is not None:
            collected.timeline(timeline, cycles=shown)
    except (KernelFault, SourceFault) as err:
        typer.echo(str(err), err=True)
        raise typer.Exit(1) from err
    except (ValueError, TypeError, OSError, RuntimeError, ImportError, EmulatorError) as err:
        typer.echo(f"cupygemm profile: {str(err).removeprefix('profile: ')}", err=True)
        raise typer.Exit(2) from err
    if as_json:
        typer.echo(json.dumps(collected.to_dict(), indent=2))
    else:
        _print(collected, loop=loop, listing=listing, source=source)


def _print(collected: Any, *, loop: bool, listing: bool, source: bool) -> None:
    """Print the tables of a profile, and the requested listings."""
    typer.echo(str(collected) if loop else collected.to_text(line_width()))
    if listing:
        typer.echo("\n" + collected.listing(), nl=False)
    if source:
        typer.echo("\n" + collected.source_listing(), nl=False)


def _subjects(words: list[str]) -> list[str]:
    """Return the subjects to profile, one for each word; M N K are one subject."""
    if len(words) == 3 and all(word.isdecimal() for word in words):
        return ["x".join(words)]
    from cupygemm.emulator.arguments import is_argument

    for word in filter(is_argument, words):
        raise ValueError(
            f"cannot profile {word}: if it is an argument of a kernel, quote it together with the "
            'others, as in --args "f32[1000] i32:7"'
        )
    if not 1 <= len(words) <= 2 or any(word.isdecimal() for word in words):
        given_words = " ".join(words) or "nothing"
        raise ValueError(
            f"cannot profile {given_words}: name a shape such as 512x512x512, or the path of a "
            "code object, of HIP source or of a Python program; or two of these to compare them"
        )
    return words


def _nth(given: list[Any] | None, index: int) -> Any:
    """Return the value of an option for a subject; the option's last value if it has too few."""
    return given[min(index, len(given) - 1)] if given else None


def _collect(word: str, given: dict[str, Any], how: dict[str, Any], *, loop: bool) -> Any:
    """Return the profile of one subject."""
    from cupygemm.emulator.arguments import parse_arguments, parse_extent, profile_code_object
    from cupygemm.emulator.profiling import Profile

    if is_shape(word):
        _refuse(given, (*_CODE_OBJECT, "options"), "a code object")
        collected = profile_product(
            parse_shape(word),
            types=given["dtype"] or "bf16",
            layout=given["layout"] or "NN",
            **{name: given[name] for name in ("target", *_PRODUCT[2:])},
            how=how,
        )
        return collected.loop() if loop else collected
    path = Path(word)
    if path.suffix == ".py":
        single = (*_PRODUCT, "grid", "block", "lds", "options")
        _refuse(given, single, "one product or kernel")
        if loop:
            raise ValueError("--loop counts the loop of one kernel, not of a program")
        return profile_script(path, (given["args"] or "").split(), given["target"], **how)
    is_source = path.suffix in SOURCES
    _refuse(given, (*_PRODUCT, *(() if is_source else ("target",))), "a matrix product")
    with code_object_of(path, given["target"], given["options"]) as code:
        if loop:
            unused = ("grid", "lds", "args")
            _refuse(given, unused, "a launch, and --loop launches nothing")
            return _code_object_loop(code, given["kernel"], given["block"])
        collected = Profile(**how)
        collected.add(
            profile_code_object(
                code,
                given["kernel"],
                grid=parse_extent(given["grid"] or "1"),
                block=parse_extent(given["block"] or "64"),
                dynamic_lds=given["lds"] or 0,
                arguments=parse_arguments(given["args"] or ""),
                sample=how["sample"],
            )
        )
        return collected


def _compared(found: list[Any], kernel: str | None) -> Comparison:
    """Compare the kernels that take longest in two profiles."""
    from cupygemm.emulator.profiling.compare import compare

    longest = []
    for profile in found:
        kernels = [k for k in profile.kernels if kernel is None or kernel in k.kernel]
        if not kernels:
            known = ", ".join(k.kernel for k in profile.kernels)
            raise ValueError(f"no kernel {kernel} was launched; launched: {known}")
        longest.append(max(kernels, key=lambda k: k.timing.cycles if k.timing else 0.0))
    return compare(*longest)


def _refuse(given: dict[str, Any], names: tuple[str, ...], of: str) -> None:
    """Raise an error if an option belongs to the other kind of subject."""
    for name in names:
        if given[name] is not None:
            raise ValueError(f"--{name.replace('_', '-')} is an option of {of}")


def _calibrate(what: list[str], as_json: bool) -> None:
    from cupygemm.emulator.calibration import figures, figures_to_dict, render

    if what:
        raise ValueError(f"--calibration runs kernels of its own and takes no {' '.join(what)!r}")
    found = list(figures())
    typer.echo(json.dumps(figures_to_dict(found), indent=2) if as_json else render(found))


def _parse_cycles(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    words = text.split(":")
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise ValueError(f"--cycles {text}: write FIRST:LAST, as in 2000:4000")
    return int(words[0]), int(words[1])


def _code_object_loop(path: Path, kernel: str | None, block: str | None) -> LoopProfile:
    from cupygemm.emulator import profile_loop
    from cupygemm.emulator.arguments import parse_extent

    threads = math.prod(parse_extent(block)) if block else None
    return profile_loop(path, kernel, threads=threads)
