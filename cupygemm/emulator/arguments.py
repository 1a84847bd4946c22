"""Parse kernel arguments from a command line, and launch a code object with them.

i32:1000              a scalar
f32[1000]             a buffer of 1000 elements, zero
f32[1000]=arange      0, 1, 2, ...; also =ones, and =random (uniform in -1..1, integers in 0..9)
{f32[1000] i64:1000}  a struct by value, with a pointer to the buffer
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cupygemm.emulator.profiling.kernel_profile import KernelProfile

_TYPES: dict[str, Any] = {
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
_FILLS = ("zeros", "ones", "arange", "random")
_SCALAR = re.compile(r"(\w+):(\S+)")
_BUFFER = re.compile(r"(\w+)\[(\d+)\](?:=(\w+))?")
_MAX_EXTENT = 2**31 - 1


def parse_arguments(text: str) -> list[Any]:
    """Return the arguments that words describe; a struct in braces becomes a tuple.

    Raises
    ------
    ValueError
        A word is not an argument, or braces do not match.
    """
    open_structs: list[list[Any]] = [[]]
    for word in text.replace("{", " { ").replace("}", " } ").split():
        if word == "{":
            open_structs.append([])
        elif word == "}" and len(open_structs) > 1:
            members = tuple(open_structs.pop())
            open_structs[-1].append(members)
        elif word == "}":
            raise ValueError(f"arguments {text!r}: a closing brace has no opening one")
        else:
            open_structs[-1].append(parse_argument(word))
    if len(open_structs) > 1:
        raise ValueError(f"arguments {text!r}: an opening brace has no closing one")
    return open_structs[0]


def is_argument(text: str) -> bool:
    """Tell whether a word has the form of a scalar or a buffer."""
    return bool(_SCALAR.fullmatch(text) or _BUFFER.fullmatch(text))


def parse_argument(text: str) -> NDArray[Any]:
    """Return an argument: a 0-d array for a scalar, a 1-d array for a buffer.

    Raises
    ------
    ValueError
        The text is not an argument; the message shows the syntax.
    """
    scalar, buffer = _SCALAR.fullmatch(text), _BUFFER.fullmatch(text)
    match = scalar or buffer
    if match is None:
        raise ValueError(
            f"argument {text!r}: write TYPE:VALUE, TYPE[COUNT] or TYPE[COUNT]=FILL, such as "
            "i32:4096 or f32[1000]=random"
        )
    dtype = _TYPES.get(match[1])
    if dtype is None:
        known = ", ".join(_TYPES)
        raise ValueError(f"argument {text!r}: type {match[1]!r} is not one of {known}")
    if scalar:
        try:
            integer = np.dtype(dtype).kind in "iu"
            value: Any = int(match[2], 0) if integer else float(match[2])
            return np.array(value, dtype)
        except (ValueError, OverflowError) as err:
            raise ValueError(
                f"argument {text!r}: {match[2]!r} is not a value of type {match[1]}"
            ) from err
    count, fill = int(match[2]), match[3] or "zeros"
    if count < 1:
        raise ValueError(f"argument {text!r}: a buffer must have at least 1 element")
    if fill not in _FILLS:
        raise ValueError(f"argument {text!r}: fill {fill!r} is not one of {', '.join(_FILLS)}")
    return _filled(np.dtype(dtype), count, fill)


def _filled(dtype: np.dtype[Any], count: int, fill: str) -> NDArray[Any]:
    if fill == "random":
        rng = np.random.default_rng(0)
        values = rng.integers(0, 10, count) if dtype.kind in "iu" else rng.uniform(-1, 1, count)
        return values.astype(dtype)
    if fill == "arange":
        return np.arange(count).astype(dtype)
    return np.ones(count, dtype) if fill == "ones" else np.zeros(count, dtype)


def parse_extent(text: str) -> tuple[int, int, int]:
    """Return the extents of a grid or a block: ``64``, ``64,2`` or ``64,2,1``.

    Raises
    ------
    ValueError
        The text is not one to three positive integers.
    """
    words = text.split(",")
    if not 1 <= len(words) <= 3 or not all(word.isdecimal() for word in words):
        raise ValueError(f"{text!r} is not one to three positive integers separated by commas")
    x, y, z = [*(int(word) for word in words), 1, 1][:3]
    if min(x, y, z) < 1 or max(x, y, z) > _MAX_EXTENT:
        raise ValueError(f"{text!r}: extents must be from 1 to {_MAX_EXTENT}")
    return x, y, z


def profile_code_object(
    path: Path,
    kernel_name: str | None,
    *,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    dynamic_lds: int,
    arguments: Sequence[Any],
    sample: int | None = None,
) -> KernelProfile:
    """Launch a kernel of a code object on a device of the code's target, without CuPy.

    Parameters
    ----------
    path : Path
        An AMDGPU ELF file.
    kernel_name : str or None
        None if the file has only one kernel.
    grid, block : tuple of int
        Workgroups, and work-items of a workgroup.
    dynamic_lds : int
        Bytes.
    arguments : sequence of ndarray
        The explicit arguments in order, as `parse_arguments` returns them.
    sample : int, optional
        Run at most this many workgroups, and scale the profile to the grid.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        The file has no such kernel, or several and no name is given, or the arguments do not fit.
    EmulatorError
        The file is not a code object, the launch is refused, or the kernel faults.
    """
    from cupygemm.emulator._standalone import launch

    try:
        stats = launch(
            path,
            grid,
            block,
            arguments,
            kernel=kernel_name,
            dynamic_lds=dynamic_lds,
            profile=True,
            sample=sample,
        )
    except ValueError as err:
        raise ValueError(f"{path}: {err}") from err
    assert stats.profile is not None
    return stats.profile
