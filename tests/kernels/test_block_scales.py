"""Factors for blocks of 32 along k (OCP MX) in the kernel: exact, without conflicts or spills."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import CompiledKernel, compile_kernel
from cupygemm._backends.cdna.launch import BLOCK_SCALE_ARGS
from cupygemm._backends.cdna.mainloops import configs_for, ping_pong
from cupygemm._backends.cdna.select import select
from cupygemm._records.problem import Epilogue, Source
from cupygemm.emulator import profile_loop
from tests.kernels.gemm import Case, Result
from tests.kernels.host import compile_for_host
from tests.problems import problem_of

PROBLEM = problem_of(
    512, 512, 512, "e4m3fn", "f32", majors="kk", a_align=4, b_align=4, c_align=4, block_scaled=True
)
LAYOUTS = ("kk", "kn", "mk", "mn")


@functools.cache
def tile_rows() -> np.ndarray:
    """Return the tile row of each of 64 LDS rows, by the kernels' own order."""
    code = (
        'extern "C" unsigned tile_row(unsigned row) { return cupygemm::RowOrder::tile_row(row); }'
    )
    library = compile_for_host("common/layout.hpp", code)
    return np.array([library.tile_row(row) for row in range(64)])


def packed(factors: np.ndarray, tile: int, steps: int) -> np.ndarray:
    """Return factors (rows, blocks) as (64 rows, step, lane, fragment), ones where there are none.

    Lane l of a step has row l % 16 of each fragment and block l // 16 of four.
    """
    rows, blocks = factors.shape
    whole = np.full((-(-rows // tile) * tile, 4 * steps), 127, np.uint8)
    whole[:rows, :blocks] = factors
    groups = whole.reshape(-1, 64, steps, 4)[:, tile_rows()]
    return groups.reshape(-1, 4, 16, steps, 4).transpose(0, 3, 4, 2, 1).copy()


@dataclass(frozen=True)
class ScaledCase(Case):
    """A problem whose operands have scales; `k` counts pairs of 4-bit floats."""

    @property
    def per_byte(self) -> int:
        """Return the elements in a byte."""
        return 2 if self.dtype == "e2m1x2" else 1

    def numbers(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return A and the transpose of B as elements (rows, k) and exponents (rows, blocks)."""
        rng = np.random.default_rng(self.seed)
        k = self.k * self.per_byte
        choices = np.array([-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2])
        return [
            (rng.choice(choices, (rows, k)), rng.integers(125, 130, (rows, -(-k // 32))))
            for rows in (self.m, self.n)
        ]

    def operands(self):
        """Return the bytes of A and B."""
        found = []
        for (numbers, _), name in zip(self.numbers(), (self.dtype, self.b_dtype), strict=True):
            if self.per_byte == 2:
                codes = numbers.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
                found.append(codes[:, ::2] | codes[:, 1::2] << 4)
            else:
                found.append(numbers.astype(getattr(ml_dtypes, f"float8_{name or self.dtype}")))
        return found[0][None], found[1].T[None]

    def problem(self, a, b, c):
        """Return the record, of operands with factors."""
        return replace(super().problem(a, b, c), block_scaled=True)

    def more_arguments(self, memory) -> bytes:
        """Return the addresses of the packed factors."""
        arguments = np.zeros(1, BLOCK_SCALE_ARGS)
        steps = -(-self.k // self.config.tile_k) * (self.config.tile_k // self.config.mma_k)
        for name, tile, (_, exponents) in zip(
            "ab", (self.config.tile_m, self.config.tile_n), self.numbers(), strict=True
        ):
            data = packed(exponents, tile, steps).tobytes()
            arguments[name] = memory.malloc(len(data), tag="factors")
            memory.write(int(arguments[name][0]), data)
        return arguments.tobytes()

    def run(self, **launch) -> Result:
        """Launch, and compare with decoded float64 products."""
        a, b = (
            numbers * np.repeat(2.0 ** (exponents - 127), 32, axis=1)[:, : numbers.shape[1]]
            for numbers, exponents in self.numbers()
        )
        return replace(super().run(**launch), expected=(a @ b.T)[None])


CASES = [
    ("e4m3fn", "e4m3fn", "kk", 3, 256, 256, 0, 1),
    ("e4m3fn", "e5m2", "mn", 2, 139, 250, 37, 1),
    ("e5m2", "e4m3fn", "kn", 4, 40, 17, 100, 2),
    ("e2m1x2", "", "kk", 3, 250, 256, 0, 1),
    ("e2m1x2", "", "mk", 1, 60, 256, 64, 1),
    ("e2m1x2", "", "mn", 4, 256, 70, 99, 2),
]


@pytest.mark.slow
@pytest.mark.one_in(3)
@pytest.mark.parametrize(("a", "b", "layout", "tiles", "m", "n", "rest", "split_k"), CASES)
def test_exact_in_any_order_of_waves_without_conflicts(
    a: str, b: str, layout: str, tiles: int, m: int, n: int, rest: int, split_k: int
) -> None:
    """Every factor differs from its neighbours, so that one in a wrong place shows."""
    config = replace(ping_pong.configs(a, "gfx950")[0], split_k=split_k)
    contiguous = (tiles * config.tile_k + rest, n)
    pads = tuple(
        -x % 4 + 4 for x in (contiguous[0] if layout[0] == "k" else m, contiguous[layout[1] == "n"])
    )
    case = ScaledCase(
        config,
        "gfx950",
        m=m,
        n=n,
        k=tiles * config.tile_k + rest,
        a_major=layout[0],
        b_major=layout[1],
        dtype=a,
        b_dtype=b,
        out_dtype="f32",
        pads=(*pads, 3),
        offsets=(4, 4, 1),
        seed=m,
    )
    result = case.run(profile=True)
    result.check_exact()
    conflicts = result.stats.lds_conflicts
    assert conflicts
    assert [extra for *_, extra in conflicts.values() if extra] == []
    assert case.run(order=("random", tiles)).buffer.tobytes() == result.buffer.tobytes()


def compiled(dtype: str, layout: str, epilogue: Epilogue | None = None) -> CompiledKernel:
    config = ping_pong.configs(dtype, "gfx950")[0]
    problem = replace(
        PROBLEM,
        a_dtype=dtype,
        b_dtype=dtype,
        a_major=layout[0],
        b_major=layout[1],
        epilogue=epilogue,
        out_dtype="f32" if epilogue is None else "bf16",
    )
    assert check(config, problem, ARCHS["gfx950"]) is None
    kernel = compile_kernel(problem, config, "gfx950")
    resources = kernel.resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    assert resources.vgprs <= 256
    return kernel


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.covering
@pytest.mark.parametrize(("dtype", "most"), [("e4m3fn", 1), ("e2m1x2", 0.99)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_matrix_pipe_is_busy(layout: str, dtype: str, most: float) -> None:
    """`profile_loop` counts this. Factors add three loads, in the memory phases."""
    loop = profile_loop(compiled(dtype, layout).path)
    assert (loop.groups, loop.waves_per_simd, loop.exposed_cycles) == (2, 2, 0)
    assert loop.efficiency >= (0.95 if layout == "mn" else most)
    steps = 2 if dtype == "e2m1x2" else 1
    assert loop.instructions["VMEM"] == 8 + 3 * steps


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("dtype", "layout"), [("e4m3fn", "mn"), ("e2m1x2", "kk")])
def test_a_full_epilogue_spills_nothing(dtype: str, layout: str) -> None:
    sources = {"scale_a": "row", "scale_b": "column", "c": "matrix", "bias": "column"}
    compiled(
        dtype,
        layout,
        Epilogue(
            alpha=True,
            activation="gelu",
            scale=True,
            clamp=True,
            **{name: Source("bf16", along, 16) for name, along in sources.items()},
        ),
    )


@pytest.mark.parametrize(
    ("config", "changes", "arch", "words"),
    [
        ({"mainloop": "register_double_buffer"}, {}, "gfx950", "takes no scales for blocks of k"),
        ({"mma_k": 32}, {}, "gfx950", "16x16x32 instruction of gfx950 takes no scales"),
        ({"stream_k": 64}, {}, "gfx950", "do not go with a persistent grid"),
        ({}, {"batch": (2,)}, "gfx950", "do not go with a batch"),
        (
            {},
            {"a_dtype": "e2m1x2", "b_dtype": "e2m1x2", "block_scaled": False},
            "gfx950",
            "e2m1x2 operands have scales",
        ),
        ({}, {}, "gfx942", "inputs of type e4m3fn have no kernel on gfx942"),
    ],
)
def test_what_is_refused(config, changes, arch, words) -> None:
    problem = replace(PROBLEM, **changes)
    base = ping_pong.configs(problem.a_dtype, "gfx950")[0]
    assert words in str(check(replace(base, **config), problem, ARCHS[arch]))


@pytest.mark.parametrize("dtype", ["e4m3fn", "e2m1x2"])
def test_few_tiles_share_k(dtype: str) -> None:
    problem = replace(PROBLEM, a_dtype=dtype, b_dtype=dtype, k=16384)
    config = select(problem, ARCHS["gfx950"]).config
    assert config.mainloop == "ping_pong"
    assert config.split_k > 1
    assert problem.flops == 2 * 512 * 512 * 16384 * (2 if dtype == "e2m1x2" else 1)
    assert config in [replace(c, split_k=config.split_k) for c in configs_for(dtype, "gfx950")]
