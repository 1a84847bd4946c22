"""Check that the arguments of a launch have the types and sizes that the kernel reads.

HIP passes only the address of each argument: the kernel reads the bytes of its parameter's size as
its parameter's type. CuPy passes Python's numbers as int64, float64 and complex128, and an array as
its address, whatever its dtype is.

A number is compared by value: an int64 of 5 is valid if the kernel reads an int. An array is
compared by dtype if the parameter's type is known (`parameter_types`), except for types that stand
for any bytes: void, char, vectors, structures, and arrays of 8-bit integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from cupygemm.emulator.diagnostics import checking
from cupygemm.emulator.diagnostics.findings import report_call
from cupygemm.emulator.errors import ArgumentFault
from cupygemm.emulator.raw_kernels.parameter_types import Parameter, parameters_of

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import Argument, Kernel

CHECK = "argument_types"
_POINTER = 8
_NULL_PAGE = 4096
_ANY_BYTES = {"u1", "i1"}  # dtypes of untyped buffers
_NARROW = {"f2", "bfloat16"}
_SAME = {  # other dtypes valid for a parameter's dtype: the same bits
    "bf16": {"u2", "i2", "bfloat16"},
    "f2": {"u2", "i2"},
    "u2": _NARROW,
    "i2": _NARROW,
    "f4": {"c8"},
    "f8": {"c16"},
    "c8": {"f4"},
    "c16": {"f8"},
}


@dataclass(frozen=True)
class Given:
    """The argument of a launch for a parameter.

    Attributes
    ----------
    dtype : str
        NumPy's name of the type of an array's elements or of a number, e.g. "f8".
    value : int, float, complex or None
        None for an array.
    size : int
        Elements.
    is_python : bool
        Whether it is a Python number.
    """

    dtype: str
    value: Any = None
    size: int = 1
    is_python: bool = False

    @property
    def words(self) -> str:
        """A description for reports."""
        name = _long(self.dtype)
        if self.value is None:
            return f"an array of {name}"
        kind = f"Python {type(self.value).__name__}" if self.is_python else f"numpy.{name}"
        return f"the {kind} {self.value}"


@dataclass(frozen=True)
class _Finding:
    text: str
    doubtful: bool = False


def report(kernel: Kernel, given: Sequence[Given | None], *, are_an_array: bool = False) -> None:
    """Report arguments that the kernel would misread.

    Parameters
    ----------
    kernel : Kernel
    given : sequence of Given or None
        None for an argument that is not checked.
    are_an_array : bool
        Whether the arguments are the elements of an array rather than of a tuple.

    Raises
    ------
    ArgumentFault
        The check is an error. For arrays and too many arguments, only if the user has named it.
    """
    policy = checking.policy()
    if policy[CHECK] == "off":
        return
    found = list(_findings(kernel, given, are_an_array=are_an_array))
    for doubtful in (True, False):
        texts = [each.text for each in found if each.doubtful == doubtful]
        severity = policy.severity(CHECK, may_be_meant=doubtful)
        if texts and severity != "off":
            head = f"kernel {kernel.name} would misread its arguments"
            lines = [head, *texts, f"check: {CHECK}"]
            report_call(ArgumentFault("\n  ".join(lines), CHECK), severity)


def _findings(
    kernel: Kernel, given: Sequence[Given | None], *, are_an_array: bool
) -> Iterator[_Finding]:
    explicit = kernel.explicit_arguments
    types = parameters_of(kernel)
    if len(given) != len(explicit):
        listed = f": ({', '.join(each.text for each in types)})" if types else ""
        yield _Finding(
            f"it takes {len(explicit)} argument{'s' * (len(explicit) != 1)}{listed}; "
            f"{len(given)} {'is' if len(given) == 1 else 'are'} given"
            + ("; the last are not used" if len(given) > len(explicit) else "")
            + ("; they are the elements of an array: write (x,) for (x)" if are_an_array else ""),
            doubtful=len(given) > len(explicit),
        )
        return
    for position, (argument, one) in enumerate(zip(explicit, given, strict=True)):
        if one is None:
            continue
        parameter = types[position] if types else None
        for found in _of_one(argument, parameter, one):
            yield _Finding(f"{argument.label(position)}: {found.text}", found.doubtful)


def _of_one(argument: Argument, parameter: Parameter | None, given: Given) -> Iterator[_Finding]:
    is_pointer = argument.value_kind == "global_buffer" or bool(parameter and parameter.is_pointer)
    wanted = _words(argument, parameter, is_pointer=is_pointer)
    if is_pointer and given.value is None:
        yield from _array(parameter, given, wanted)
    elif is_pointer:
        yield from _address(given, wanted)
    elif given.value is None:
        yield from _array_for_number(argument, parameter, given, wanted)
    else:
        yield from _number(argument, parameter, given, wanted)


def _words(argument: Argument, parameter: Parameter | None, *, is_pointer: bool) -> str:
    if parameter is not None:
        return parameter.text
    return "a pointer" if is_pointer else f"a value of {argument.size} bytes"


def _array(parameter: Parameter | None, given: Given, wanted: str) -> Iterator[_Finding]:
    """Compare an array with the target type of a pointer."""
    dtype = parameter.dtype if parameter else ""
    if dtype in ("", *_ANY_BYTES) or given.dtype in ("", *_ANY_BYTES, dtype):
        return
    are_integers = {given.dtype[0], dtype[0]} <= set("iu") and given.dtype[1:] == dtype[1:]
    if are_integers or given.dtype in _SAME.get(dtype, ()):
        return
    yield _Finding(
        f"the kernel takes {wanted}, and {given.words} is passed: pass an array of "
        f"{_long(dtype)}" + f", e.g. x.astype(numpy.{_long(dtype)})" * (dtype != "bf16"),
        doubtful=True,
    )


def _address(given: Given, wanted: str) -> Iterator[_Finding]:
    """Check a number, which may be an address, for a pointer parameter."""
    if given.dtype[0] == "u" or (given.dtype[0] in "i?" and not 0 < given.value < _NULL_PAGE):
        return
    yield _Finding(f"the kernel takes {wanted}, and {given.words} is passed: pass an array")


def _array_for_number(
    argument: Argument, parameter: Parameter | None, given: Given, wanted: str
) -> Iterator[_Finding]:
    """Check an array for a value parameter, which may take its address."""
    dtype = parameter.dtype if parameter else ""
    if argument.size < _POINTER or (argument.size == _POINTER and dtype not in ("", "u8")):
        yield _Finding(
            f"the kernel takes {wanted} by value, and the address of {given.words} is passed: pass "
            "a number, as float(x) or int(x) makes it of an array of one element",
            doubtful=dtype == "i8",
        )


def _number(
    argument: Argument, parameter: Parameter | None, given: Given, wanted: str
) -> Iterator[_Finding]:
    """Compare a number with the value that the kernel reads from its bytes."""
    dtype = parameter.dtype if parameter else ""
    if dtype == given.dtype:
        return
    passed = np.dtype(given.dtype)
    if dtype == "bf16":
        if given.dtype not in ("u2", "i2"):
            yield _Finding(
                f"the kernel takes {wanted}, and {given.words} is passed: pass its 16 bits, as a "
                "numpy.uint16"
            )
        return
    if dtype and np.dtype(dtype).itemsize != argument.size:
        return  # another type of this name
    data = np.array(given.value, passed).tobytes().ljust(argument.size, b"\0")[: argument.size]
    if dtype:
        wrong = _differs(np.dtype(dtype), passed, given.value, data)
        read = f", and would read {np.frombuffer(data, dtype)[0]!s}"
        fix = _converted(np.dtype(dtype), given.value)
    else:
        # A 4-byte value of unknown type is not a float64.
        wrong = argument.size == 4 and passed.kind in "fc" and passed.itemsize > 4
        read, fix = "", f"pass numpy.float32({given.value})"
    if wrong:
        yield _Finding(
            f"the kernel takes {wanted}, of {argument.size} bytes{read}; {given.words} is passed, "
            f"as {passed.itemsize} bytes of {passed.name}: {fix}",
            doubtful=passed.itemsize == argument.size == 2,  # as the bits of a float16
        )


def _differs(wanted: np.dtype[Any], passed: np.dtype[Any], value: Any, data: bytes) -> bool:
    """Tell whether the kernel would read another value than was passed."""
    if wanted.kind in "iub" and passed.kind in "iub":
        bits = 8 * wanted.itemsize
        if passed.itemsize >= wanted.itemsize:  # C's conversion keeps the lower bits
            return not -(1 << bits - 1) <= value < 1 << bits
        return bool(value < 0)
    if wanted == passed:
        return False
    read = np.frombuffer(data, wanted)[0]
    return not np.array_equal(read, value, equal_nan=True)


def _converted(wanted: np.dtype[Any], value: Any) -> str:
    """Return the expression to pass instead."""
    if wanted.kind in "iu" and (
        value != int(value) or not np.iinfo(wanted).min <= value <= np.iinfo(wanted).max
    ):
        return f"{wanted.name} does not hold this value"
    return f"pass numpy.{wanted.name}({value})"


def _long(dtype: str) -> str:
    return "bfloat16" if dtype in ("bf16", "bfloat16") else np.dtype(dtype).name
