"""``python -m cupygemm warmup`` and ``tune``: `warmup` and `tune` from the command line.

A shape is written MxNxK, with the extents of a batch before it. If a word is invalid, the command
prints the library's error and exits with status 2.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from cupygemm._build.cache import CacheError, cache_dir
from cupygemm._commands.terminal import Json, console, start_device
from cupygemm._commands.words import DTYPE_HELP, LAYOUT_HELP, parse_shape, parse_types
from cupygemm.emulator.targets import TARGETS

if TYPE_CHECKING:
    from cupygemm._tuning.tune import Tuned

Shapes = Annotated[
    list[str],
    typer.Argument(metavar="SHAPE", help="MxNxK, or BATCHxMxNxK for a batch of products."),
]
Dtypes = Annotated[
    list[str],
    typer.Option(
        "--dtype",
        help=f"The type of the operands: {DTYPE_HELP} May be repeated.",
    ),
]
ResultDtype = Annotated[
    str | None,
    typer.Option(
        "--result-dtype", help="The type of the results.", show_default="as matmul chooses"
    ),
]
Layouts = Annotated[
    list[str],
    typer.Option(
        "--layout",
        help=f"{LAYOUT_HELP} May be repeated.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        help=f"Emulate this target ({', '.join(TARGETS)}), even if there is a GPU.",
        show_default="none: use the best device",
    ),
]


def warmup(
    shapes: Shapes,
    dtypes: Dtypes = ["bf16"],  # noqa: B006  (typer copies it)
    result_dtype: ResultDtype = None,
    layouts: Layouts = ["NN"],  # noqa: B006
    workers: Annotated[
        int | None,
        typer.Option(
            help="Compilations that run at a time.", min=1, show_default="one per processor"
        ),
    ] = None,
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Compile the kernels of products ahead of time, in parallel, into the cache on disk.

    For example, to compile for two shapes and two types while a container is built:

    $ python -m cupygemm warmup 4096x4096x4096 16x512x512x64 --dtype bf16 --dtype fp16

    Every combination of shape, type and layout is one product. With --target, no GPU is needed.
    """
    from cupygemm._tuning.warmup import warmup as compile_ahead

    with _refusing("warmup"):
        device = start_device(target)
        start = time.perf_counter()
        made = compile_ahead(
            [parse_shape(shape) for shape in shapes],
            parse_types(dtypes),
            dtype=parse_types([result_dtype])[0] if result_dtype else None,
            layouts=layouts,
            workers=workers,
        )
    seconds = time.perf_counter() - start
    count = len(shapes) * len(dtypes) * len(layouts)
    if as_json:
        report = {
            "device": device,
            "products": count,
            "with_a_kernel": made,
            "seconds": seconds,
            "cache": str(cache_dir()),
        }
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
        int, typer.Option(help="Configurations to measure, the model's best first.", min=1)
    ] = 8,
    target: Target = None,
    as_json: Json = False,
) -> None:
    """Measure configurations of products on the device and keep the fastest for later calls.

    For example, to tune a product whose second operand is a transposed view:

    $ python -m cupygemm tune 4096x4096x4096 --dtype bf16 --layout NT

    Every combination of shape, type and layout is one product. On the emulated device there is no
    time to measure: the figures are the model's, and none is kept.
    """
    from cupygemm._tuning.tune import tune as measure

    with _refusing("tune"):
        device = start_device(target)
        found = measure(
            [parse_shape(shape) for shape in shapes],
            parse_types(dtypes),
            dtype=parse_types([result_dtype])[0] if result_dtype else None,
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
        out.print(_table(tuned))
    if count > len(found):
        out.print(f"{count - len(found)} of {count} products have no kernel of this library")
    if any(tuned.kind == "measured" for tuned in found):
        out.print(f"the first of each is used from now on; kept in {cache_dir()}")


def _table(tuned: Tuned) -> Table:
    """Return the figures of a product's configurations, the best first."""
    table = Table(
        title=escape(f"{tuned.product} on {tuned.device}, {tuned.kind}"),
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column(_unit(tuned.kind), justify="right", no_wrap=True)
    table.add_column("configuration", overflow="fold")
    for config, figure in tuned.figures:
        table.add_row(f"{figure:,.1f}", escape(config.summary))
    return table


def _unit(kind: str) -> str:
    return "microseconds" if kind == "measured" else "cycles"


@contextmanager
def _refusing(command: str) -> Iterator[None]:
    """Print the error of a command and exit with status 2."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, ImportError, CacheError) as err:
        reason = str(err).removeprefix(f"{command}: ")
        typer.echo(f"cupygemm {command}: {reason}", err=True)
        raise typer.Exit(2) from err
