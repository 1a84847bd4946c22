"""The products of ``profile MxNxK``, for operands of any type of the library.

An MX format (OCP Microscaling) means elements of that format, and exponents as scales for blocks of
32 along k. Such products, and others with scales, are computed by `cupygemm.scaled_matmul`; all
others by `cupygemm.matmul`. Two types, or two kinds of scales, with a comma between them are for
the two operands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm._commands import detect as _detect
from cupygemm._commands.words import parse_types
from cupygemm._records.dtypes import FLOAT8
from cupygemm._records.formats import as_stored
from cupygemm._request.microscaling import BLOCK, ELEMENTS, element_format, per_byte
from cupygemm._tuning.product import LAYOUTS, products_of

if TYPE_CHECKING:
    from cupygemm.emulator.profiling import Profile

MX_FORMATS: Mapping[str, str] = {
    "mxfp8": "e4m3fn",
    "mxfp6": "e2m3",
    "mxfp4": "e2m1",
    **{f"mxfp{dtype.name[5]}_{name}": name for name, dtype in ELEMENTS.items()},
}
"""The format of the elements of each MX format, by the name that users give."""
DTYPES_HELP = (
    f"bf16, fp16, fp32, fp64, int8, e4m3fn, complex64, ...; or an MX format: "
    f"{', '.join(MX_FORMATS)}. A,B are the types of the two operands."
)
SCALES_HELP = (
    "Scales of the operands, as `scaled_matmul` takes them: tensor (a single one), row (one for "
    "each row of A or column of B), 1x128 (for each row and each 128 of k) or 128x128. A,B are "
    "those of the two operands."
)
_EXPONENTS = (125, 130)  # range of random scales: 1/4 to 4


def profile_product(
    shape: tuple[int, ...],
    *,
    types: str,
    layout: str,
    target: str | None,
    precision: str | None,
    result_dtype: str | None,
    scales: str | None = None,
    how: Mapping[str, Any],
) -> Profile:
    """Run a product of random operands on the emulated device, and return its profile.

    Parameters
    ----------
    shape : tuple of int
        (..., m, n, k).
    types : str
        The operands' type, or A,B.
    layout : str
        One of `LAYOUTS`.
    target : str or None
        The target to emulate, if no device is emulated yet.
    precision, result_dtype : str or None
        The options ``precision`` and ``dtype`` of `cupygemm.matmul`.
    scales : str or None
        The kind of the operands' scales, or A,B.
    how : mapping
        Arguments of `cupygemm.emulator.profile`.

    Raises
    ------
    ValueError
        The types, the shape and the layout do not describe a product.
    """
    from cupygemm import emulator

    if not emulator.is_enabled():
        emulator.enable(target or _detect.DEFAULT_TARGET)
    elif target not in (None, emulator.target()):
        raise ValueError(f"{emulator.target()} is already emulated in this process, not {target}")
    if layout not in LAYOUTS:
        raise ValueError(f"profile: layout must be one of {', '.join(LAYOUTS)} (got {layout!r})")
    names = types.split(",") * (1 if "," in types else 2)
    if len(names) != 2:
        raise ValueError(f"--dtype {types}: write one type, or A,B")
    options: dict[str, Any] = {} if precision is None else {"precision": precision}
    if result_dtype is not None:
        (options["dtype"],) = parse_types([result_dtype])
    if any(_mx_format(name) for name in names):
        if scales is not None:
            raise ValueError(f"--scales {scales}: the MX format {types} has its own scales")
        return _profile_scaled(shape, names, layout, options, how)
    from cupygemm._products.matmul import matmul

    first, second = parse_types(names)
    operands = arrays(shape, first, layout)[0], arrays(shape, second, layout)[1]
    if scales is not None:
        from cupygemm._products.scaled import scaled_matmul

        factors, block = _scales(shape, scales)
        with emulator.profile(**how) as collected:
            scaled_matmul(*operands, *factors, block=block, **options)
        return collected
    with emulator.profile(**how) as collected:
        matmul(*operands, **options)
    return collected


def _scales(shape: tuple[int, ...], text: str) -> tuple[list[Any], int | None]:
    """Return random scales of both operands as the option specifies, and the block's extent."""
    import cupy

    kinds = text.split(",") * (1 if "," in text else 2)
    blocks = [re.fullmatch(r"(\d+)x(\d+)", kind) for kind in kinds]
    known = [
        kind in ("tensor", "row") or (block and int(block[2]) and block[1] in ("1", block[2]))
        for kind, block in zip(kinds, blocks, strict=True)
    ]
    extents = {int(block[2]) for block in blocks if block}
    if len(kinds) != 2 or not all(known) or len(extents) > 1:
        raise ValueError(
            f"--scales {text}: write tensor, row, 1x128 or 128x128, or two of these as A,B; 128 "
            "stands for any number, the same for both operands"
        )
    if len(shape) != 3:
        raise ValueError(f"the shape {shape} is not (m, n, k): scaled products have no batch")
    m, n, k = shape
    size = max(extents, default=128)
    rng = np.random.default_rng(2)
    factors = []
    for extent, kind in ((m, kinds[0]), (n, kinds[1])):
        rows = {"tensor": 1, f"{size}x{size}": -(-extent // size)}.get(kind, extent)
        steps = -(-k // size) if "x" in kind else 1
        drawn = cupy.asarray(rng.uniform(0.5, 2, (rows, steps)).astype(np.float32))
        factors.append(drawn)
    return [factors[0], factors[1].T], size if extents else None


def arrays(shape: tuple[int, ...], dtype: np.dtype[Any], layout: str) -> list[Any]:
    """Return operands of a product on the current device, of random numbers.

    Parameters
    ----------
    shape : tuple of int
        (..., m, n, k).
    dtype : numpy.dtype
    layout : str
        One of `LAYOUTS`.
    """
    import cupy

    from cupygemm.testing import integer_operands, random_operands

    products_of("profile", [shape], [dtype], None, [layout])  # a wrong shape is refused here
    draw = integer_operands if dtype.kind in "iu" else random_operands
    *batch, m, n, k = shape
    pair = []
    for x, letter in zip(draw((*batch, m, k), (*batch, k, n), dtype), layout, strict=True):
        stored = x if letter == "N" else np.ascontiguousarray(np.swapaxes(x, -1, -2))
        # CuPy cannot copy 8-bit floats, but it can view bytes as such.
        on_device = cupy.asarray(as_stored(stored)).view(dtype)
        pair.append(on_device if letter == "N" else cupy.swapaxes(on_device, -1, -2))
    return pair


def _mx_format(word: str) -> str | None:
    """Return the element format of an MX format; None for other types."""
    named = MX_FORMATS.get(word.lower()) or element_format(word)
    return None if word in FLOAT8 or (named in FLOAT8 and word not in MX_FORMATS) else named


def _profile_scaled(
    shape: tuple[int, ...],
    names: list[str],
    layout: str,
    options: dict[str, Any],
    how: Mapping[str, Any],
) -> Profile:
    """Profile a product in MX formats."""
    from cupygemm import emulator
    from cupygemm._products.scaled import scaled_matmul

    formats = [_mx_format(name) for name in names]
    first, second = formats
    if first is None or second is None:
        raise ValueError(f"--dtype {','.join(names)}: both operands must have an MX format")
    if len(shape) != 3 or min(shape) < 1:
        raise ValueError(
            f"the shape {shape} is not (m, n, k): products in MX formats have no batch"
        )
    m, n, k = shape
    if k % max(per_byte(first), per_byte(second)):
        raise ValueError(f"k = {k} is odd, and a byte of e2m1 has two elements along k")
    a, scale_a = _drawn(m, k, first, transposed=layout[0] == "T", seed=0)
    # These are rows of B's transpose, so "N", a (k, n) matrix in C order, is transposed here.
    b, scale_b = _drawn(n, k, second, transposed=layout[1] == "N", seed=1)
    options |= {"format_a": first, "format_b": second}
    with emulator.profile(**how) as collected:
        scaled_matmul(a, b.T, scale_a, scale_b.T, **options)
    return collected


def _drawn(rows: int, k: int, name: str, *, transposed: bool, seed: int) -> tuple[Any, Any]:
    """Return random elements, (rows, bytes along k), and exponents, (rows, blocks)."""
    import cupy

    rng = np.random.default_rng(seed)
    codes: Any = rng.standard_normal((rows, k)).astype(ELEMENTS[name]).view(np.uint8)
    if per_byte(name) == 2:
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    exponents = rng.integers(*_EXPONENTS, (rows, -(-k // BLOCK)), dtype=np.uint8)
    if transposed:
        return cupy.asarray(np.ascontiguousarray(codes.T)).T, cupy.asarray(exponents)
    return cupy.asarray(codes), cupy.asarray(exponents)
