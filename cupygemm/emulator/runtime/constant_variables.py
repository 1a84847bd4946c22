"""Find reads of ``__constant__`` variables that neither the source nor the host sets.

    __constant__ float weights[9];     kernel reads weights, and nobody called module.get_global

C++ sets such a variable to zero. The host can set it only after requesting its address. Launches of
kernels of `cupy.RawModule` are checked after they end: a finding is a read of a variable in a
module none of whose variables' addresses were requested. (If the host has set others, the compiler
may have moved the read out of a condition.) Only variables that hold zeros are checked, and none
with an initialiser or of a type that may have one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cupygemm.emulator.code_object.kept_source import without_comments
from cupygemm.emulator.concurrency.stream_order import INTERVAL
from cupygemm.emulator.waves.reports import instruction_of

if TYPE_CHECKING:
    from cupygemm.emulator.runtime.raw_arguments import RawLaunch

CHECK = "constant_variables"
_DECLARED = re.compile(r"__constant__\b([^;={}()]*);")
_NAME = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")


def unfilled(launch: RawLaunch) -> list[tuple[str, int, int]]:
    """Return the names, addresses and sizes of variables that hold zeros before a launch."""
    code = launch.kernel.code_object
    _, source = code.program
    found = []
    for name in _without_a_value(source) if not code.shown and "__constant__" in source else ():
        address, size = code.symbols.get(name, (0, 0))
        if size and not any(launch.memory.read(address, size)):
            found.append((name, address, size))
    return found


@functools.lru_cache(maxsize=64)
def _without_a_value(source: str) -> tuple[str, ...]:
    """Return the names of variables declared without an initialiser."""
    declarations = _DECLARED.finditer(without_comments(source))
    declared = (each for declaration in declarations for each in declaration[1].split(","))
    return tuple(name[1] for name in map(_NAME.search, declared) if name)


def findings(launch: RawLaunch, found: Sequence[tuple[str, int, int]]) -> Iterator[str]:
    """Yield a finding for each of the variables that a launch has read."""
    shadow = launch.shadow
    times = np.array([(shadow.launch_start, int(shadow.clock[0]))], INTERVAL)
    for name, address, size in found:
        access = shadow.find_access((address, address + size), times, with_reads=True)
        if access is not None:
            where = instruction_of(launch.kernel, launch.target, access[2]).replace("\n", "\n  ")
            kernel = launch.kernel.name
            yield (
                f"kernel {kernel} reads a __constant__ variable that nobody has filled\n"
                f"  {name} has no value in the source, and holds zeros; it is read by\n"
                f"    {where}\n"
                f'  fill it by module.get_global("{name}"), or write "= {{}}" if zeros are meant\n'
                f"  check: {CHECK}"
            )
