"""Helpers of the tests of float operations: compare an operation with a reference on edges."""

from __future__ import annotations

from collections.abc import Callable

from tests.emulator.float_reference import Result, canonical
from tests.emulator.harness import assemble_all
from tests.emulator.vector_cases import DEFAULT_MODE, columns, evaluate, mismatches

WIDTHS = {"f16": 16, "f32": 32, "f64": 64}
REGISTERS = {
    16: ("v0", "v2", "v4", "v6"),
    32: ("v0", "v2", "v4", "v6"),
    64: ("v[0:1]", "v[2:3]", "v[4:5]", "v[6:7]"),
}


def text(name: str, width: int, count: int, pattern: str = "{}", suffix: str = "") -> str:
    """Return an instruction over `count` sources, each formatted by a pattern such as ``-|{}|``."""
    result, *sources = REGISTERS[width][: count + 1]
    return f"{name} {result}, {', '.join(pattern.format(source) for source in sources)}{suffix}"


def check(
    instruction_text: str,
    count: int,
    width: int,
    compute: Callable[..., Result],
    *,
    others: tuple[str, ...] = (),
    mode: int = DEFAULT_MODE,
    target: str = "gfx942",
    old: int = 0,
    rows: list[tuple[int, ...]] | None = None,
) -> None:
    """Compare an instruction with `compute` on the edges of floats and random bits."""
    texts = others or (instruction_text,)
    instruction = assemble_all(texts, target)[texts.index(instruction_text)]
    rows = rows or columns([width] * count, floats=range(count))
    got = evaluate(instruction, rows, width, mode=mode, target=target, old=old)
    expected = [compute(*row) for row in rows]
    assert not mismatches([canonical(bits, width) for bits in got], expected, rows)
