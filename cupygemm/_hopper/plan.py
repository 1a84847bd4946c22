"""Products on Hopper: which kernels, and the runner that launches them.

TMA reads an operand where it lies if its rows begin at multiples of 16 bytes; other operands are
first copied, by a kernel, to rows that do. A result that TMA cannot write is stored element by
element. Where few tiles would leave SMs idle, k is split, and a second kernel adds the parts in
their order: no sum depends on timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cupygemm._copies import assign, copied
from cupygemm._explain import Explanation
from cupygemm._hopper.compile import Cubin, compile_cubin
from cupygemm._hopper.config import HopperArch, HopperConfig
from cupygemm._hopper.launch import (
    AddLaunch,
    GemmLaunch,
    Geometry,
    PadLaunch,
    Stack,
    TransposeLaunch,
    Triple,
    launch_grid,
)
from cupygemm._hopper.select import HopperSelection, select
from cupygemm._hopper.source import add_source, generate, pad_source, transpose_source
from cupygemm._layout import Layout
from cupygemm._pose import Posed
from cupygemm._problem import ITEMSIZE, GemmProblem

GEMM_ENTRY, ADD_ENTRY = "cupygemm_gemm", "cupygemm_add_parts"
PAD_ENTRY, TRANSPOSE_ENTRY = "cupygemm_pad_copy", "cupygemm_transpose_copy"
_TURNED = "wgmma takes 8-bit operands with adjacent elements along k, so it is transposed"


@dataclass(frozen=True)
class HopperChoice:
    """The kernels for a product.

    Attributes
    ----------
    selection : HopperSelection
    problem : GemmProblem
    a, b, c : Stack
        Operands and result where they lie.
    a_pad, b_pad : str or None
        Why an operand is copied first.
    a_turned, b_turned : bool
        The copy is a transposition, after which the elements along k are adjacent.
    c_direct : str or None
        Why the result is stored element by element.
    num_sms : int
    """

    selection: HopperSelection
    problem: GemmProblem
    a: Stack
    b: Stack
    c: Stack
    a_pad: str | None
    b_pad: str | None
    c_direct: str | None
    num_sms: int
    a_turned: bool = False
    b_turned: bool = False

    @property
    def config(self) -> HopperConfig:
        """Return the configuration."""
        return self.selection.config

    @property
    def gemm(self) -> Cubin:
        """Return the GEMM kernel, compiled."""
        text = generate(self.problem, self.config, tma_store=self.c_direct is None)
        return compile_cubin(text, GEMM_ENTRY)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the copies and the slower stores, as sentences."""
        notes = [
            f"{name} is copied for TMA: {reason}"
            for name, reason in (("A", self.a_pad), ("B", self.b_pad))
            if reason is not None
        ]
        if self.c_direct is not None and self.config.split_k == 1:
            notes.append(f"C is stored without TMA: {self.c_direct}")
        return tuple(notes)

    def explain(
        self, call: str, device: str, copies: tuple[str, ...], num_launches: int
    ) -> Explanation:
        """Return the account of a call, for people."""
        config, gemm = self.config, self.gemm
        return Explanation(
            call,
            device,
            "cupygemm",
            self.selection.reason,
            copies + self.notes,
            self.problem,
            config,
            gemm.resources(config.shared_bytes(self.a.itemsize)),
            gemm.compiler,
            num_launches,
            launch_grid(config, config.num_units(self.problem), self.num_sms),
        )

    def geometry(self) -> Geometry:
        """Return what the GEMM kernel reads and writes, padding and workspace included."""
        problem = self.problem
        batch = _triple(problem.batch)
        result = self.c
        if self.config.split_k > 1:
            pitch = -(-problem.n // 4) * 4
            parts = self.config.split_k * problem.num_batches
            matrix = problem.m * pitch
            result = Stack("f32", problem.n, problem.m, pitch, (1, 1, parts), (0, 0, matrix))
        return Geometry(
            _as_read(self.a, self.a_pad, self.a_turned),
            _as_read(self.b, self.b_pad, self.b_turned),
            result,
            problem.m,
            problem.n,
            problem.k,
            batch,
            problem.a_major,
            problem.b_major,
            3 if len(problem.batch) < 2 else 5,
            self.c_direct is None or self.config.split_k > 1,
        )


def choose(layout: Layout, arch: HopperArch, config: HopperConfig | None = None) -> HopperChoice:
    """Return the kernels for the launches of a layout, by a given configuration or the best.

    Raises
    ------
    ValueError
        No configuration can run.
    """
    given = layout.problem
    # wgmma reads 8-bit operands along k only.
    along_k = ITEMSIZE[given.a_dtype] == 1
    a_turned, b_turned = along_k and given.a_major != "k", along_k and given.b_major != "k"
    problem = replace(given, a_major="k", b_major="k") if along_k else given
    a = _stack(given, "a", layout.lda, layout.a_stride)
    b = _stack(given, "b", layout.ldb, layout.b_stride)
    c = _stack(problem, "c", layout.ldc, layout.c_stride)
    selection = select(problem, arch) if config is None else HopperSelection(config, "as asked")
    return HopperChoice(
        selection,
        problem,
        a,
        b,
        c,
        _TURNED if a_turned else a.why_not_tma(problem.a_align),
        _TURNED if b_turned else b.why_not_tma(problem.b_align),
        c.why_not_tma(problem.c_align),
        arch.num_sms,
        a_turned,
        b_turned,
    )


def _as_read(stack: Stack, pad: str | None, turned: bool) -> Stack:
    if turned:
        return stack.transposed()
    return stack if pad is None else stack.padded()


def _stack(problem: GemmProblem, name: str, pitch: int, strides: Triple) -> Stack:
    m, n, k = problem.m, problem.n, problem.k
    if name == "a":
        adjacent, rows = (k, m) if problem.a_major == "k" else (m, k)
    elif name == "b":
        adjacent, rows = (k, n) if problem.b_major == "k" else (n, k)
    else:
        adjacent, rows = n, m
    dtype = {"a": problem.a_dtype, "b": problem.b_dtype, "c": problem.out_dtype}[name]
    batch = _triple(
        1 if stride == 0 else extent
        for extent, stride in zip(_triple(problem.batch), strides, strict=True)
    )
    return Stack(dtype, adjacent, rows, pitch, batch, strides)


def _triple(extents: Any) -> Triple:
    values = tuple(extents)
    first, second, third = (1,) * (3 - len(values)) + values
    return first, second, third


# -- Running ---------------------------------------------------------------------------------------


def make_runner(posed: Posed, choice: HopperChoice) -> Callable[[Any, Any, Any], Any]:
    """Return what computes a posed call, its kernels loaded."""
    from cupy import ndarray

    layout = posed.layout
    assert layout is not None
    launch = make_product(choice)
    shape, dtype, swapped = posed.shape.result, posed.types.container, layout.swapped
    sizes = [ITEMSIZE[getattr(layout.problem, f"{name}_dtype")] for name in ("a", "b", "out")]
    offsets = [tuple(s * o for s, o in zip(sizes, each, strict=True)) for each in layout.launches]

    def run_in_place(x1: Any, x2: Any, out: Any) -> Any:
        if out is None:
            out = ndarray(shape, dtype)
        if swapped:
            x1, x2 = x2, x1
        launch(x1.data.ptr, x2.data.ptr, out.data.ptr)
        return out

    def run_staged(x1: Any, x2: Any, out: Any) -> Any:
        first, second = copied(x1, posed.x1_copy), copied(x2, posed.x2_copy)
        if swapped:
            first, second = second, first
        staged = out is None or posed.temporary is not None
        target = ndarray(shape, dtype) if staged else out
        for a, b, c in offsets:
            launch(first.data.ptr + a, second.data.ptr + b, target.data.ptr + c)
        if out is None:
            return target
        if staged:
            assign(out, target)
        return out

    return run_staged if posed.copies or len(offsets) > 1 else run_in_place


def make_product(choice: HopperChoice) -> Callable[[int, int, int], None]:
    """Return what launches the kernels of one product, given the addresses of A, B and C."""
    from cupy.cuda import alloc

    geometry, config = choice.geometry(), choice.config
    units = config.num_units(choice.problem)
    gemm = GemmLaunch(load(choice.gemm), geometry, config, units, choice.num_sms)
    pad_a = _copy_launch(choice.a, choice.a_pad, choice.a_turned)
    pad_b = _copy_launch(choice.b, choice.b_pad, choice.b_turned)
    if pad_a is None and pad_b is None and config.split_k == 1:
        return gemm
    add = None
    if config.split_k > 1:
        vectors = choice.problem.c_align >= 4 * choice.c.itemsize
        cubin = compile_cubin(add_source(choice.problem, vectors=vectors), ADD_ENTRY)
        add = AddLaunch(load(cubin), geometry, choice.c, config.split_k)

    def launch(a: int, b: int, c: int) -> None:
        # The pool hands memory that these free to later work of the same stream only.
        if pad_a is not None:
            padded_a = alloc(pad_a.num_bytes)
            pad_a(a, padded_a.ptr)
            a = padded_a.ptr
        if pad_b is not None:
            padded_b = alloc(pad_b.num_bytes)
            pad_b(b, padded_b.ptr)
            b = padded_b.ptr
        if add is None:
            gemm(a, b, c)
            return
        workspace = alloc(add.num_bytes)
        gemm(a, b, workspace.ptr)
        add(workspace.ptr, c)

    return launch


def load(cubin: Cubin) -> Any:
    """Return the kernel of a cubin, loaded on the current device."""
    from cupy import RawModule

    return RawModule(path=str(cubin.path)).get_function(cubin.name)


def _copy_launch(
    stack: Stack, reason: str | None, turned: bool
) -> PadLaunch | TransposeLaunch | None:
    if reason is None:
        return None
    if turned:
        return TransposeLaunch(load(compile_cubin(transpose_source(), TRANSPOSE_ENTRY)), stack)
    return PadLaunch(load(compile_cubin(pad_source(), PAD_ENTRY)), stack)
