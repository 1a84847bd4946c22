"""``python -m cupygemm warmup`` and ``tune``: `warmup` and `tune` for products named by words.

A shape is written MxNxK, with the extents of a stack before it. What the library raises for a wrong
one is printed, and is exit status 2.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from cupygemm._build.cache import CacheError, cache_dir
from cupygemm._commands.terminal import console, start_device
from cupygemm.emulator.targets import TARGETS

NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
"""Short names of types, besides those of NumPy and of 8-bit floats."""

Shapes = Annotated[
    list[str],
    typer.Argument(metavar="SHAPE", help="MxNxK, or BATCHxMxNxK for a stack of products."),
]
Dtypes = Annotated[
    list[str],
    typer.Option(
        "--dtype",
        help="Of the operands: bf16, fp16, fp32, fp64, int8, e4m3fn, complex64, ... Several times, "
        "for several types.",
    ),
]
ResultDtype = Annotated[
    str | None,
    typer.Option(
        "--result-dtype", help="Of the results, as matmul's dtype.", show_default="matmul's"
    ),
]
Layouts = Annotated[
    list[str],
    typer.Option(
        "--layout",
        help="NN, NT, TN or TT: N is an operand in C order, T a transposed view of one. Several "
        "times, for several layouts.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help=f"Emulate one of {', '.join(TARGETS)}, GPU or not.",
        show_default="the best device at hand",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def warmup(
    shapes: Shapes,
    dtypes: Dtypes = ["bf16"],  # noqa: B006  (typer copies it)
    result_dtype: ResultDtype = None,
    layouts: Layouts = ["NN"],  # noqa: B006
    workers: Annotated[
        int | None,
        typer.Option(help="Compilations at a time.", min=1, show_default="as many as processors"),
    ] = None,
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Compile the kernels of products ahead, in parallel, into the cache on disk.

    For example, for two shapes and two types, when a container is built:

    $ python -m cupygemm warmup 4096x4096x4096 16x512x512x64 --dtype bf16 --dtype fp16

    Every combination of shape, type and layout is one product. With --target no GPU is needed.
    """
    from cupygemm._tuning.warmup import warmup as compile_ahead

    with _refusing("warmup"):
        device = start_device(target)
        start = time.perf_counter()
        made = compile_ahead(
            [_extents(shape) for shape in shapes],
            _types(dtypes),
            dtype=_types([result_dtype])[0] if result_dtype else None,
            layouts=layouts,
            workers=workers,
        )
    seconds = time.perf_counter() - start
    count = len(shapes) * len(dtypes) * len(layouts)
    if as_json:
        report = {"device": device, "products": count, "with_a_kernel": made, "seconds": seconds,
                  "cache": str(cache_dir())}  # fmt: skip
        typer.echo(json.dumps(report, indent=2))
        return
    rest = "" if made == count else f"; {count - made} are left to CuPy"
    typer.echo(
        f"{device}: {made} of {count} products have a kernel, ready in {seconds:.1f} s{rest}"
    )
    typer.echo(f"kept in {cache_dir()}")


def tune(
    shapes: Shapes,
    dtypes: Dtypes = ["bf16"],  # noqa: B006
    result_dtype: ResultDtype = None,
    layouts: Layouts = ["NN"],  # noqa: B006
    candidates: Annotated[
        int, typer.Option(help="Configurations to measure: the model's first ones.", min=1)
    ] = 8,
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Measure configurations of products on the device, and keep the fastest for later calls.

    For example, for a product whose second operand is a transposed view:

    $ python -m cupygemm tune 4096x4096x4096 --dtype bf16 --layout NT

    Every combination of shape, type and layout is one product. The emulated device has no time to
    measure: there the figures are the model's, and none is kept.
    """
    from cupygemm._tuning.tune import tune as measure

    with _refusing("tune"):
        device = start_device(target)
        found = measure(
            [_extents(shape) for shape in shapes],
            _types(dtypes),
            dtype=_types([result_dtype])[0] if result_dtype else None,
            layouts=layouts,
            candidates=candidates,
        )
    count = len(shapes) * len(dtypes) * len(layouts)
    if as_json:
        report = {
            "device": device,
            "products": [
                {
                    "product": tuned.product,
                    "kind": tuned.kind,
                    "figures": [
                        {"config": config.summary, _unit(tuned.kind): figure}
                        for config, figure in tuned.figures
                    ],
                }
                for tuned in found
            ],
        }
        typer.echo(json.dumps(report, indent=2))
        return
    out = console()
    for tuned in found:
        table = Table(
            title=escape(f"{tuned.product} on {tuned.device}, {tuned.kind}"),
            title_justify="left", box=None, pad_edge=False,
        )  # fmt: skip
        table.add_column(_unit(tuned.kind), justify="right", no_wrap=True)
        table.add_column("configuration", overflow="fold")
        for config, figure in tuned.figures:
            table.add_row(f"{figure:,.1f}", escape(config.summary))
        out.print(table)
    if count > len(found):
        out.print(f"{count - len(found)} of {count} products have no kernel of this library")
    if any(tuned.kind == "measured" for tuned in found):
        out.print(f"the first of each is used from now on; kept in {cache_dir()}")


def _unit(kind: str) -> str:
    return "microseconds" if kind == "measured" else "cycles"


def _extents(word: str) -> tuple[int, ...]:
    """Return the extents that a word names."""
    parts = word.lower().split("x")
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"the shape {word!r} is not MxNxK, or BATCHxMxNxK")
    return tuple(map(int, parts))


def _types(words: list[str]) -> list[Any]:
    """Return the types that words name."""
    from cupygemm._records.formats import parse_dtype

    found = []
    for word in words:
        try:
            found.append(parse_dtype(NAMES.get(word, word)))
        except TypeError as err:
            raise ValueError(
                f"{word!r} is no type; there are {', '.join(NAMES)}, int8, uint8, 8-bit floats "
                "(e4m3fn, ...) and NumPy's names"
            ) from err
    return found


@contextmanager
def _refusing(command: str) -> Iterator[None]:
    """Print what is wrong with a command, and leave with exit status 2."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, ImportError, CacheError) as err:
        reason = str(err).removeprefix(f"{command}: ")
        typer.echo(f"cupygemm {command}: {reason}", err=True)
        raise typer.Exit(2) from err
