"""`Explanation`, which `cupygemm.explain` returns: how a product is computed, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cupygemm._backends.protocol import Config
from cupygemm._records.problem import GemmProblem


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """How `matmul` computes one call. ``print`` it for a readable description.

    Attributes
    ----------
    call : str
        Shapes and dtypes of the call and of its result.
    device : str
    backend : {"cupygemm", "cuBLASLt", "cupy.matmul", "none"}
        What multiplies; ``"none"`` if no product is needed (an empty result, or k = 0).
    why : str
        Why this backend, and, for a kernel, why this configuration.
    copies : tuple of str
        The copies that are made, and their reasons; empty if all operands are read in place.
    problem : GemmProblem or None
        The problem that the kernel solves; for a column-major result, the transposed one.
    config : record or None
        The kernel's configuration; its fields depend on the backend.
    resources : record or None
        Registers, shared memory and code of the kernel, computed from its code object.
    compiler : str or None
    num_launches : int
    grid : tuple of int or None
        Workgroups of the first launch.
    epilogue : str or None
        The operations on the sums before they are rounded, and what applies them.
    """

    call: str
    device: str
    backend: str
    why: str
    copies: tuple[str, ...] = ()
    problem: GemmProblem | None = None
    config: Config | None = None
    resources: Any = None
    compiler: str | None = None
    num_launches: int = 0
    grid: tuple[int, int, int] | None = None
    epilogue: str | None = None

    def _repr_html_(self) -> str:
        import html  # imported here because only notebooks need it

        call, _, rest = str(self).partition("\n")
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(line[:11].strip())}</th>'
            f'<td style="text-align:left">{html.escape(line[11:].strip())}</td></tr>'
            for line in (line.removeprefix("  ") for line in rest.splitlines())
        )
        return f"<p><b>{html.escape(call)}</b></p><table>{rows}</table>"

    def __str__(self) -> str:
        lines = [self.call, f"  device     {self.device}", f"  backend    {self.backend}"]
        if self.problem is not None:
            p = self.problem
            batch = f", batch {'x'.join(map(str, p.batch))}" if p.batch else ""
            lines.append(f"  problem    m={p.m} n={p.n} k={p.k}{batch}")
            lines.append(
                f"  operands   A {p.a_dtype} {p.a_major}-major, B {p.b_dtype} {p.b_major}-major, "
                f"C {p.out_dtype}; aligned to {p.a_align}, {p.b_align}, {p.c_align} bytes"
            )
        if self.epilogue is not None:
            lines.append(f"  epilogue   {self.epilogue}")
        if self.config is not None:
            lines.append(f"  config     {self.config.summary}")
        if self.grid is not None:
            times = f", {self.num_launches} launches" if self.num_launches > 1 else ""
            lines.append(f"  grid       {' x '.join(map(str, self.grid))} workgroups{times}")
        if self.resources is not None:
            lines.append(f"  resources  {self.resources.summary} (computed, {self.compiler})")
        lines += [f"  copies     {note}" for note in self.copies or ("none",)]
        return "\n".join([*lines, f"  why        {self.why}"])
