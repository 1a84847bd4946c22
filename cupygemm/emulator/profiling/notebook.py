"""Profiles as HTML for notebooks: the verdict, pictures, and collapsible tables.

The bars of the cycles are SVG written here. matplotlib draws the timeline and the roofline, if it
is installed.
"""

from __future__ import annotations

import base64
import html
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from cupygemm.emulator.profiling import roofline, timeline
from cupygemm.emulator.profiling.kernel_counts import KernelCounts
from cupygemm.emulator.profiling.tables import names_of, render, title
from cupygemm.emulator.profiling.timing.model import ISSUE
from cupygemm.emulator.profiling.verdict import verdict

_WIDTH, _ROW = 620, 20
_PICTURED = 4  # pictures are drawn for this many kernels, those with the longest modelled times


def profile_html(kernels: Sequence[KernelCounts]) -> str:
    """Return kernels as HTML, with pictures of those with the longest modelled times."""
    if not kernels:
        return "<p>no launches</p>"
    by_time = sorted(kernels, key=lambda k: -(k.timing.cycles if k.timing else 0.0))
    pictured = by_time[:_PICTURED]
    parts = [
        _kernel(kernel, name, pictures=any(kernel is p for p in pictured))
        for kernel, name in zip(kernels, names_of(kernels), strict=True)
    ]
    drawn = [kernel for kernel in kernels if kernel.flop and kernel.hbm_bytes]
    if drawn:
        parts.append(_picture(lambda path: roofline.draw(drawn, path), "Roofline (computed)"))
    parts.append(
        f"<details><summary>All figures</summary>{preformatted(render(kernels))}</details>"
    )
    return f"<div>{''.join(parts)}</div>"


def preformatted(text: str) -> str:
    """Return text as HTML that keeps its columns."""
    return f'<pre style="font-size:80%;overflow-x:auto">{html.escape(text)}</pre>'


def _kernel(kernel: KernelCounts, name: str, *, pictures: bool) -> str:
    parts = [f"<h4>{html.escape(title(kernel, name))}</h4>", verdict(kernel)._repr_html_()]
    if pictures and kernel.timing is not None:
        parts.append(_bars(kernel))
        parts.append(
            _picture(lambda path: timeline.draw(kernel, path, None), "Timeline of a CU (modelled)")
        )
    return "".join(parts)


def _bars(kernel: KernelCounts) -> str:
    """Return an SVG of the uses of the waves' modelled cycles."""
    assert kernel.timing is not None
    cycles = {name: n for name, n in kernel.timing.wave_cycles.items() if n}
    total = sum(cycles.values())
    if not total:
        return ""
    rows = []
    for row, (name, n) in enumerate(sorted(cycles.items(), key=lambda item: -item[1])):
        y, width = row * _ROW, max(1.0, (_WIDTH - 260) * n / total)
        colour = "#2166ac" if name == ISSUE else "#d6604d"
        rows.append(
            f'<text x="120" y="{y + 14}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="128" y="{y + 3}" width="{width:.1f}" height="14" fill="{colour}"/>'
            f'<text x="{134 + width:.1f}" y="{y + 14}">{n / total:.1%}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{len(rows) * _ROW}" '
        f'font-family="sans-serif" font-size="12" fill="currentColor" role="img" '
        f'aria-label="Modelled cycles of the waves">{"".join(rows)}</svg>'
    )


def _picture(draw: Callable[[Path], None], caption: str) -> str:
    """Return a picture as HTML, or an empty string if it cannot be drawn."""
    with tempfile.TemporaryDirectory(prefix="cupygemm-notebook-") as folder:
        path = Path(folder, "picture.png")
        try:
            draw(path)
        except (ModuleNotFoundError, ValueError):  # no matplotlib, or nothing to draw
            return ""
        data = base64.b64encode(path.read_bytes()).decode()
    return (
        f"<details><summary>{html.escape(caption)}</summary>"
        f'<img style="max-width:100%" alt="{html.escape(caption)}" '
        f'src="data:image/png;base64,{data}"></details>'
    )
