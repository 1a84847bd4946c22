"""Operands of 1, 4, 8 and 16 bytes: every tile exact, without spills or bank conflicts.

The kernels of 16-bit operands have tests of their own; those of other types share their mainloop,
so one layout of each configuration runs here, dealt so that each type meets all four. Every tile of
bytes is run with i8, and every other one with f32 or f64, which share their tiles; the other types
with as many configurations as there are layouts.
"""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.check import check
from cupygemm._backends.cdna.compile import compile_kernel
from cupygemm._backends.cdna.mainloops import register_double_buffer
from cupygemm._records.dtypes import ITEMSIZE
from tests.kernels.gemm import NUMPY_DTYPE, Case, Placement, config_of, with_layout
from tests.tables import rows_of

LAYOUTS = ["kk", "kn", "mk", "mn"]
EVERY_TILE = ("f32", "f64", "i8")
RESULTS = {"f64": "f64", "i8": "i32", "c64": "c64", "c128": "c128"}  # of others, f32
PAIRS = {  # formats of 8-bit floats of A, B and C
    "gfx942": [
        ("e4m3fnuz", "e4m3fnuz", "bf16"),
        ("e4m3fnuz", "e5m2fnuz", "e5m2fnuz"),
        ("e5m2fnuz", "e4m3fnuz", "e4m3fnuz"),
        ("e5m2fnuz", "e5m2fnuz", "f32"),
    ],
    "gfx950": [
        ("e4m3fn", "e4m3fn", "f16"),
        ("e4m3fn", "e5m2", "e5m2"),
        ("e5m2", "e4m3fn", "e4m3fn"),
        ("e5m2", "e5m2", "f32"),
    ],
}


def tailed(config, arch, dtype, layout, **changes):
    """Return a case with ragged tiles on every side, its rows apart and at odd addresses.

    Rows of bytes start at dwords; those of C need not.
    """
    m, n, k = config.tile_m + 5, config.tile_n - 3, 2 * config.tile_k + 9
    case = Case(config, arch, m=m, n=n, k=k, dtype=dtype, out_dtype=RESULTS.get(dtype, "f32"))
    case = with_layout(replace(case, **changes), layout)
    if ITEMSIZE[dtype] != 1:
        return replace(case, pads=(1, 3, 5), offsets=(1, 1, 1))
    rows = (case.k if layout[0] == "k" else case.m, case.n if layout[1] == "n" else case.k)
    return replace(case, pads=(-rows[0] % 4, -rows[1] % 4 + 4, 5), offsets=(4, 4, 1))


def suits(config, dtype, layout, arch):
    """Tell whether a configuration takes a layout: tiles of bytes on the side of 256 do not all."""
    a = Placement(0, 64, (0, 0, 0), 0)
    case = with_layout(
        Case(config, arch, m=64, n=64, k=64, dtype=dtype, out_dtype=RESULTS.get(dtype, "f32")),
        layout,
    )
    return check(config, case.problem(a, a, a), ARCHS[arch]) is None


def suited(dtype, layout, arch, mma):
    """Return the smallest configuration with an instruction that takes a layout."""
    configs = [c for c in register_double_buffer.configs(dtype, arch) if c.mma_m == mma]
    return [c for c in configs if suits(c, dtype, layout, arch)][-1]


def every_config():
    """Yield every tile of gfx942, each with a layout that it takes, and a few of other targets."""
    for dtype in EVERY_TILE:
        for number, config in enumerate(register_double_buffer.configs(dtype, "gfx942")):
            if dtype == ("f64" if number % 2 else "f32"):  # the other of the two has it
                continue
            layouts = [layout for layout in LAYOUTS if suits(config, dtype, layout, "gfx942")]
            layout = layouts[(number + number // 4) % len(layouts)]
            yield pytest.param(
                config, "gfx942", dtype, layout, id=f"gfx942-{dtype}-{layout}-{number}"
            )
        for arch, layout in (
            ("gfx90a", "kn"),
            ("gfx90a", "mk"),
            ("gfx950", "mn"),
            ("gfx950", "kk"),
        ):
            configs = register_double_buffer.configs(dtype, arch)
            number = LAYOUTS.index(layout) * 2 + 2
            yield pytest.param(configs[number], arch, dtype, layout, id=f"{arch}-{dtype}-{layout}")


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.covering(apart_from=("tile_m", "tile_n", "waves_m", "waves_n", "waves_per_simd"))
@pytest.mark.parametrize(("config", "arch", "dtype", "layout"), rows_of(every_config, width=4))
def test_exact_without_spills_or_conflicts(config, arch, dtype, layout):
    case = tailed(config, arch, dtype, layout)
    result = case.run(profile=True)
    result.check_exact()
    conflicts = result.stats.lds_conflicts
    assert conflicts
    assert [extra for *_, extra in conflicts.values() if extra] == []
    check_resources(case)


def check_resources(case):
    """Assert that the kernel spills nothing and that as many waves fit as it was built for."""
    align = max(4, ITEMSIZE[case.dtype])
    place = Placement(align, 64, (0, 0, 0), 0)
    resources = compile_kernel(case.problem(place, place, place), case.config, case.arch).resources
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    most = ARCHS[case.arch].registers_per_simd // case.config.waves_per_simd
    assert resources.vgprs <= most


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("mma", [16, 32])
@pytest.mark.parametrize("arch", PAIRS)
def test_pairs_of_8_bit_formats(arch, mma, number):
    """Each pair in a layout of its own, with a result of each kind."""
    a, b, out = PAIRS[arch][number]
    layout = LAYOUTS[(number + mma // 16) % 4]
    config = suited(a, layout, arch, mma)
    case = tailed(config, arch, a, layout, b_dtype=b, out_dtype=out)
    case.run().check_exact()
    check_resources(case)


@pytest.mark.parametrize(
    ("layout", "mma"),
    [
        ("kn", 16),
        ("mk", 32),
        *(pytest.param(*case, marks=pytest.mark.sweep) for case in (("kk", 32), ("mn", 16))),
    ],
)
def test_xf32_of_exact_operands(layout, mma):
    case = tailed(suited("tf32", layout, "gfx942", mma), "gfx942", "tf32", layout)
    case.run().check_exact()
    check_resources(case)


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize(
    ("dtype", "layout", "arch", "mma"),
    [
        ("c64", "kn", "gfx942", 16),
        ("c64", "mk", "gfx942", 32),
        ("c64", "mn", "gfx950", 16),
        ("c64", "kk", "gfx90a", 32),
        ("c128", "kn", "gfx942", 16),
        ("c128", "mk", "gfx950", 16),
        ("c128", "mn", "gfx942", 16),
        ("c128", "kk", "gfx90a", 16),
    ],
)
def test_complex_numbers(dtype, layout, arch, mma):
    """Exact with ragged tiles, in the smallest tile and in the largest; and within the bound."""
    configs = [largest(dtype, arch, mma)] if layout == "kk" else []
    for config in [suited(dtype, layout, arch, mma), *configs]:
        case = tailed(config, arch, dtype, layout)
        result = case.run(profile=True)
        result.check_exact()
        assert [extra for *_, extra in result.stats.lds_conflicts.values() if extra] == []
        check_resources(case)
    case = tailed(suited(dtype, layout, arch, mma), arch, dtype, layout, integers=False)
    testing.assert_gemm_close(case.run().c, *case.operands())


def largest(dtype, arch, mma):
    """Return the configuration of the largest tile with an instruction."""
    return next(c for c in register_double_buffer.configs(dtype, arch) if c.mma_m == mma)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_complex_configurations_fit_their_registers(dtype):
    for config in register_double_buffer.configs(dtype, "gfx950")[::2]:
        check_resources(tailed(config, "gfx950", dtype, "mn"))


@pytest.mark.parametrize("mma", [16, 32])
def test_xf32_is_within_the_bound_of_cut_operands_and_cuts_them(mma):
    case = tailed(suited("tf32", "kk", "gfx942", mma), "gfx942", "tf32", "kk", integers=False)
    result = case.run()
    testing.assert_gemm_close(result.c, *case.operands(), precision="xf32")
    with pytest.raises(AssertionError, match="are wrong"):
        testing.assert_gemm_close(result.c, *case.operands())


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("arch", "dtype"), [("gfx942", "e5m2fnuz"), ("gfx950", "e4m3fn")])
def test_error_bound_of_8_bit_floats(arch, dtype):
    """Subnormal operands too: a third of these numbers are below the smallest normal one."""
    config = suited(dtype, "kn", arch, 16)
    case = tailed(config, arch, dtype, "kn", integers=False)
    low = float(np.ldexp(1.0, ml_dtypes.finfo(NUMPY_DTYPE[dtype]).minexp))
    operands = tuple((x.astype(np.float32) * 2 * low).astype(x.dtype) for x in case.operands())
    assert 0.2 < np.mean(np.abs(operands[0].astype(np.float32)) < low) < 0.5
    for given in (case.operands(), operands):
        testing.assert_gemm_close(forced(case, given).run().c, *given)


@pytest.mark.one_in(4)
@pytest.mark.covering
@pytest.mark.parametrize("layout", ["kn", "mk"])
@pytest.mark.parametrize("dtype", EVERY_TILE)
def test_memory_ends_with_the_last_element(dtype, layout):
    """Depths that end a vector and a dword anywhere; rows lie apart where that shows."""
    config = config_of("gfx942", 64, 64, dtype=dtype)
    for m, n, k in ((65, 67, 1), (63, 129, 66), (3, 1, config.tile_k + 2), (1, 66, 13)):
        tailed(config, "gfx942", dtype, layout, m=m, n=n, k=k).run().check_exact()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_error_bound(dtype):
    case = tailed(config_of("gfx942", 64, 64, dtype=dtype), "gfx942", dtype, "kn", integers=False)
    result = case.run()
    result.check_guards()
    testing.assert_gemm_close(result.c, *case.operands())


def test_bytes_of_every_value():
    """-128 times -128 and 127 times -128, whose sums need their sign and all 32 bits."""
    case = tailed(config_of("gfx942", 64, 64, dtype="i8"), "gfx942", "i8", "mk")
    rng = np.random.default_rng(1)
    shapes = (1, case.m, case.k), (1, case.k, case.n)
    operands = tuple(rng.choice(np.array([-128, 127], np.int8), shape) for shape in shapes)
    forced(case, operands).run().check_exact()


def forced(case, operands):
    """Return a case with these operands."""
    kind = type("Forced", (Case,), {"operands": lambda self: operands})
    return kind(**{f: getattr(case, f) for f in case.__dataclass_fields__})


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", EVERY_TILE)
def test_the_order_of_waves_does_not_matter(dtype):
    config = config_of("gfx942", 32, 32, dtype=dtype)
    case = tailed(config, "gfx942", dtype, "mn", integers=dtype == "i8")
    bits = [
        case.run(order=order).buffer.tobytes() for order in ("lockstep", "reverse", ("random", 1))
    ]
    assert bits[0] == bits[1] == bits[2]
