"""The stand-in libhiprand.so.1: rocRAND's generators, in the order of their default ordering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cupygemm.emulator.host_libraries import rand_distributions as distributions
from cupygemm.emulator.host_libraries.library import Call, HostLibrary, LibraryError, implements
from cupygemm.emulator.host_libraries.rand_distributions import Distribution
from cupygemm.emulator.host_libraries.rand_engines import Mrg32k3a, Xorwow
from cupygemm.emulator.host_libraries.rand_sequences import (
    EngineSequence,
    PhiloxSequence,
    Request,
    Sequence,
    SobolSequence,
    TwisterSequence,
)
from cupygemm.emulator.runtime.status import store_int, store_size

VERSION = 300000  # hipRAND 3.0.0, of ROCm 7.0

# hiprandRngType: the generator, and the kind of its numbers.
_TYPES = {
    400: ("xorwow", "word"),
    401: ("xorwow", "word"),
    402: ("mrg32k3a", "mrg"),
    403: ("mtgp32", "word"),
    404: ("mt19937", "word"),
    405: ("philox", "word"),
    500: ("sobol32", "sobol"),
    501: ("sobol32", "sobol"),
    503: ("sobol64", "sobol"),
}
_UNSUPPORTED = {502: "scrambled Sobol32", 504: "scrambled Sobol64"}


@dataclass
class Generator:
    """A generator; a new seed or offset restarts its sequence.

    Attributes
    ----------
    name : str
    kind : {"word", "mrg", "sobol"}
        The kind of its numbers, which determines the distributions' formulas.
    """

    name: str
    kind: str
    seed: int = 0
    offset: int = 0
    stream: int = 0
    sequence: Sequence | None = None

    def started(self) -> Sequence:
        """Return the sequence, advanced past the latest results."""
        if self.sequence is None:
            self.sequence = self._start()
        return self.sequence

    def _start(self) -> Sequence:
        if self.name == "xorwow":
            return EngineSequence(Xorwow(self.seed, self.offset), self.offset)
        if self.name == "mrg32k3a":
            return EngineSequence(Mrg32k3a(self.seed, self.offset), self.offset)
        if self.name == "philox":
            return PhiloxSequence(self.seed, self.offset)
        if self.name.startswith("sobol"):
            return SobolSequence(int(self.name[-2:]), self.offset)
        return TwisterSequence(self.seed, self.offset)


class HipRand(HostLibrary):
    """The functions of hipRAND that CuPy binds."""

    stem = "hiprand"
    soname = "libhiprand.so.1"
    statuses = {  # noqa: RUF012
        "not_initialized": 101,
        "alloc_failed": 102,
        "type_error": 103,
        "out_of_range": 104,
        "invalid_value": 104,
        "execution_failed": 201,
        "internal_error": 999,
        "not_supported": 1000,
    }

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        self._generators: dict[int, Generator] = {}

    def stream_of(self, handle: int) -> int:
        """Return the stream of a generator; see `HostLibrary`."""
        return self._generators[handle].stream if handle in self._generators else 0

    def _generator(self, generator: int) -> Generator:
        if generator not in self._generators:
            raise LibraryError("not_initialized", f"generator 0x{generator:x} does not exist")
        return self._generators[generator]

    @implements("hiprandGetVersion")
    def _get_version(self, call: Call, version: int) -> None:
        call.check(version != 0, "version is a null pointer")
        store_int(version, VERSION)

    @implements("hiprandCreateGenerator")
    def _create(self, call: Call, generator: int, kind: int) -> None:
        if kind in _UNSUPPORTED:
            message = f"the emulated device has no {_UNSUPPORTED[kind]} generator"
            raise LibraryError("not_supported", message)
        call.check(kind in _TYPES, f"{kind} is no hiprandRngType", "type_error")
        number = next(self._handles)
        self._generators[number] = Generator(*_TYPES[kind])
        store_size(generator, number)

    @implements("hiprandDestroyGenerator")
    def _destroy(self, call: Call, generator: int) -> None:
        self._generator(generator)
        del self._generators[generator]

    @implements("hiprandSetStream")
    def _set_stream(self, call: Call, generator: int, stream: int) -> None:
        self._generator(generator).stream = stream

    @implements("hiprandSetPseudoRandomGeneratorSeed")
    def _set_seed(self, call: Call, generator: int, seed: int) -> None:
        known = self._generator(generator)
        if known.kind != "sobol":  # rocRAND ignores the seed of a quasi-random generator
            known.seed, known.sequence = seed, None

    @implements("hiprandSetGeneratorOffset")
    def _set_offset(self, call: Call, generator: int, offset: int) -> None:
        known = self._generator(generator)
        known.offset, known.sequence = offset, None

    def _generate(
        self, call: Call, known: Generator, output: int, n: int, distribution: Distribution
    ) -> None:
        if not output or n == 0:
            return
        dtype = np.dtype(distribution.dtype)
        sequence = known.started()
        place = output // dtype.itemsize
        request = Request(n, distribution.inputs, distribution.outputs, place)
        results = call.write("output", output, (n,), dtype)
        found = distribution.apply(sequence.numbers(request))
        head, _, tail = request.parts(sequence.stored_width(request))
        # The groups of a head or a tail may have more results than are stored.
        head_groups = -(-head // distribution.outputs)
        body_groups = (n - head - tail) // distribution.outputs
        flat = found.reshape(-1)
        start = head_groups * distribution.outputs
        middle = start + body_groups * distribution.outputs
        results[:head] = flat[:head]
        results[head : n - tail] = flat[start:middle]
        results[n - tail :] = flat[middle : middle + tail]

    @implements("hiprandGenerate")
    def _integers(self, call: Call, generator: int, output: int, n: int) -> None:
        known = self._generator(generator)
        self._generate(call, known, output, n, distributions.integers(known.kind))

    @implements("hiprandGenerateUniform", "hiprandGenerateUniformDouble")
    def _uniform(self, call: Call, generator: int, output: int, n: int) -> None:
        known = self._generator(generator)
        dtype = "f8" if call.function.endswith("Double") else "f4"
        self._generate(call, known, output, n, distributions.uniform(known.kind, dtype))

    @implements(
        "hiprandGenerateNormal",
        "hiprandGenerateNormalDouble",
        "hiprandGenerateLogNormal",
        "hiprandGenerateLogNormalDouble",
    )
    def _normal(
        self, call: Call, generator: int, output: int, n: int, mean: float, stddev: float
    ) -> None:
        known = self._generator(generator)
        dtype = "f8" if call.function.endswith("Double") else "f4"
        log = "Log" in call.function
        distribution = distributions.normal(known.kind, dtype, mean, stddev, log=log)
        self._generate(call, known, output, n, distribution)

    @implements("hiprandGeneratePoisson")
    def _poisson(self, call: Call, generator: int, output: int, n: int, mean: float) -> None:
        known = self._generator(generator)
        call.check(mean > 0, f"lambda={mean} must be positive", "out_of_range")
        self._generate(call, known, output, n, distributions.poisson(known.kind, mean))
