"""Products on Hopper: which kernels compute them.

TMA reads an operand where it lies if its rows begin at multiples of 16 bytes; other operands are
first copied, by a kernel, to rows that do. A result that TMA cannot write is stored without it.
Where few tiles would leave SMs idle, k is split, and a second kernel adds the parts in their order;
where they fill SMs unevenly, some are cut along k. A kernel may compute the transpose of the
result, from the operands exchanged. No sum depends on timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cupygemm._backends.hopper import fp64, tf32x3
from cupygemm._backends.hopper.compile import Cubin, compile_cubin
from cupygemm._backends.hopper.config import HopperArch, HopperConfig, check
from cupygemm._backends.hopper.copies import SPLIT_PARTS, OperandCopy
from cupygemm._backends.hopper.launch import Geometry, launch_grid
from cupygemm._backends.hopper.orientation import as_computed, transposed
from cupygemm._backends.hopper.select import HopperSelection, select
from cupygemm._backends.hopper.source import BlockScaling, generate, parts_dtype
from cupygemm._backends.hopper.stack import Stack, Triple
from cupygemm._plan.explanation import Explanation
from cupygemm._records.problem import DType, GemmProblem
from cupygemm._request.layout import Layout
from cupygemm._tuning.database import winner

GEMM_ENTRY = "cupygemm_gemm"
_TURNED = "wgmma takes operands of {} bits with adjacent elements along k, so it is transposed"
_SPLIT = "fp32 is split into parts of tf32, of which three products make one of fp32"


@dataclass(frozen=True)
class HopperChoice:
    """The kernels for a product.

    Attributes
    ----------
    selection : HopperSelection
    asked, problem : GemmProblem
        The product, and as the kernel computes it, from the copies.
    a, b, c : Stack
        The kernel's operands and result where they lie.
    a_copy, b_copy : OperandCopy or None
        How an operand is copied first.
    c_direct : str or None
        Why the result is stored without TMA.
    num_sms : int
    lower_triangle : bool
        The kernel computes the lower triangle of C, and a second one mirrors it.
    block_scales : {"blocks", "columns"} or None
        The kernel scales sums along k, see `generate`.
    """

    selection: HopperSelection
    asked: GemmProblem
    problem: GemmProblem
    a: Stack
    b: Stack
    c: Stack
    a_copy: OperandCopy | None
    b_copy: OperandCopy | None
    c_direct: str | None
    num_sms: int
    lower_triangle: bool = False
    block_scales: BlockScaling | None = None

    @property
    def config(self) -> HopperConfig:
        """Return the configuration."""
        return self.selection.config

    @property
    def finishes(self) -> bool:
        """Whether another kernel makes both triangles from sums: what is added is not symmetric."""
        epilogue = self.asked.epilogue
        return self.lower_triangle and epilogue is not None and epilogue.c is not None

    @property
    def gemm(self) -> Cubin:
        """Return the GEMM kernel, compiled."""
        return self.gemm_of(0)

    def gemm_of(self, group_capacity: int) -> Cubin:
        """Return the GEMM kernel of up to so many products, or of one alone, compiled."""
        text = generate(
            self.problem,
            self.config,
            tma_store=self.c_direct is None,
            group_capacity=group_capacity,
            lower_triangle=self.lower_triangle,
            block_scales=self.block_scales,
            sums_only=self.finishes,
        )
        return compile_cubin(text, GEMM_ENTRY)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the copies and the slower stores, as sentences."""
        notes = [
            f"{name} is copied for TMA: {copy.reason}"
            for name, copy in zip(
                "BA" if self.config.c_turned else "AB", (self.a_copy, self.b_copy), strict=True
            )
            if copy is not None
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
            self.asked,
            config,
            gemm.resources(config.shared_bytes(self.a.itemsize, self.problem.b_major)),
            gemm.compiler,
            num_launches,
            launch_grid(config, config.num_units(self.problem), self.num_sms),
            None if self.asked.epilogue is None else self.asked.epilogue.summary,
        )

    def geometry(self) -> Geometry:
        """Return what the GEMM kernel reads and writes, padding and workspace included."""
        problem, result = self.problem, self.c
        batch = _triple(problem.batch)
        if self.config.split_k > 1 or self.finishes:
            m, n = result.rows, result.adjacent
            pitch = -(-n // 4) * 4
            parts = self.config.split_k * problem.num_batches
            result = Stack(parts_dtype(problem), n, m, pitch, (1, 1, parts), (0, 0, m * pitch))
        return Geometry(
            self.a if self.a_copy is None else self.a_copy.target(self.a),
            self.b if self.b_copy is None else self.b_copy.target(self.b),
            result,
            problem.m,
            problem.n,
            problem.k,
            batch,
            problem.a_major,
            problem.b_major,
            3 if len(problem.batch) < 2 else 5,
            self.c_direct is None or result is not self.c,
        )


def choose(
    layout: Layout,
    arch: HopperArch,
    config: HopperConfig | None = None,
    *,
    tuned_on: str | None = None,
) -> HopperChoice:
    """Return the kernels for the launches of a layout, by a given configuration or the best.

    The best is the one that was measured fastest on the device named `tuned_on`, if one was.

    Raises
    ------
    ValueError
        No configuration can run.
    """
    asked = layout.problem
    if asked.a_dtype == "f32":
        raise ValueError(
            "tensor cores do not multiply float32 exactly; precision='tf32x3' is nearly exact, and "
            "precision='tf32' rounds the operands"
        )
    if config is not None:
        selection = HopperSelection(config, "as asked")
    else:
        selection = _tuned(asked, arch, tuned_on) or select(asked, arch)
    c_turned = selection.config.c_turned
    stacks = [
        _stack(asked, "a", layout.lda, layout.a_stride),
        _stack(asked, "b", layout.ldb, layout.b_stride),
    ]
    a, b = reversed(stacks) if c_turned else stacks
    c = _stack(asked, "c", layout.ldc, layout.c_stride)
    given = transposed(asked) if c_turned else asked
    problem = as_computed(asked, c_turned=c_turned)
    if config is None and asked.a_dtype == "tf32x3":
        tf32x3.require(asked, selection, arch)
    if config is None and asked.a_dtype == "f64":
        fp64.require(asked, selection, arch)
    a_turned, b_turned = given.a_major != problem.a_major, given.b_major != problem.b_major
    return HopperChoice(
        selection,
        asked,
        problem,
        a,
        b,
        c,
        a_copy=_copy(a, given.a_dtype, given.a_align, turned=a_turned, low_part=0),
        b_copy=_copy(b, given.b_dtype, given.b_align, turned=b_turned, low_part=1),
        c_direct=c.why_not_stored(problem.c_align),
        num_sms=arch.num_sms,
    )


def _copy(
    stack: Stack, dtype: DType, alignment: int, *, turned: bool, low_part: int
) -> OperandCopy | None:
    """Return the copy of an operand that the kernel needs, if it needs one."""
    if dtype == "tf32x3":
        return OperandCopy(_SPLIT, turned, SPLIT_PARTS, low_part)
    if turned:
        return OperandCopy(_TURNED.format(8 * stack.itemsize), turned)
    reason = stack.why_not_tma(alignment)
    return None if reason is None else OperandCopy(reason)


def _tuned(asked: GemmProblem, arch: HopperArch, device: str | None) -> HopperSelection | None:
    """Return the configuration that was measured fastest on a device, if one was that can run."""
    found = None if device is None else winner(device, asked, HopperConfig)
    if found is None or device is None:
        return None
    config = found[0]
    if check(config, as_computed(asked, c_turned=config.c_turned), arch) is not None:
        return None
    return HopperSelection(config, found[1].describe(device))


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
