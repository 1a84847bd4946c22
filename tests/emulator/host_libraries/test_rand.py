"""The stand-in hipRAND: engines against AMD's compiled ones, orders against rocRAND's kernels."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.host_libraries import rand_distributions, rand_engines, rand_sequences
from cupygemm.emulator.host_libraries.rand_engines import Mrg32k3a, Xorwow, philox
from cupygemm.emulator.host_libraries.rand_sequences import Request
from tests.emulator.host_libraries.calls import NULL, Library

XORWOW, MRG, MTGP, MT, PHILOX, SOBOL32, SOBOL64 = 401, 402, 403, 404, 405, 501, 503
PSEUDO = (XORWOW, MRG, MTGP, MT, PHILOX)
SEEDS = pytest.mark.parametrize("seed", [0, 5, 123456789012345])


def of_amd(cp: ModuleType, name: str, seed: int) -> tuple[int, list[np.ndarray[Any, Any]]]:
    """Return the seed and two numbers each of 256 engines, by rocRAND's code in CuPy's wheel.

    Each thread has its own subsequence.
    """
    bits = getattr(cp.random, name)(seed, size=256)
    state = np.random.SeedSequence(seed).generate_state(1, np.uint32)
    return int(state[0]), [bits.random_raw(256).get().view(np.uint32) for _ in range(2)]


@SEEDS
def test_xorwow_is_amd_s(cp: ModuleType, seed: int) -> None:
    seed, expected = of_amd(cp, "XORWOW", seed)
    found = Xorwow(seed, 0).draw(np.arange(256), 2)
    np.testing.assert_array_equal(found.T, expected)


@SEEDS
def test_mrg32k3a_is_amd_s(cp: ModuleType, seed: int) -> None:
    seed, expected = of_amd(cp, "MRG32k3a", seed)
    found = rand_distributions.mrg_integers(Mrg32k3a(seed, 0).draw(np.arange(256), 2))
    np.testing.assert_array_equal(found.T, expected)


@SEEDS
def test_philox_is_amd_s(cp: ModuleType, seed: int) -> None:
    seed, expected = of_amd(cp, "Philox4x3210", seed)
    np.testing.assert_array_equal(
        philox(seed, np.arange(2, dtype=np.uint64)), [numbers[0] for numbers in expected]
    )


def test_philox_s_published_numbers() -> None:
    """Random123's known answers for a counter and a key of zeros."""
    found = philox(0, np.arange(4, dtype=np.uint64))
    assert [hex(x) for x in found] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


@pytest.mark.parametrize("engine", [Xorwow, Mrg32k3a])
def test_skipping_is_drawing(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rand_engines, "NUM_ENGINES", 8)
    drawn = engine(77, 0)
    for place in range(8 * 5 + 3):
        drawn.draw(np.array([place % 8]), 1)
    skipped = engine(77, 8 * 5 + 3)
    every = np.arange(8)
    np.testing.assert_array_equal(skipped.draw(every, 3), drawn.draw(every, 3))


class Thread:
    """A thread of rocRAND's XORWOW kernel, as its source has it."""

    def __init__(self, engines: Any, engine: int) -> None:
        self.engines, self.engine = engines, engine

    def group(self, inputs: int) -> list[int]:
        return [int(self.engines.draw(np.array([self.engine]), 1)[0, 0]) for _ in range(inputs)]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 30])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (2, 1), (2, 2), (4, 2)])
def test_the_order_of_engines(
    monkeypatch: pytest.MonkeyPatch, inputs: int, outputs: int, place: int, count: int
) -> None:
    """Two calls, against a loop over threads that is written like the kernel."""
    size = 8
    monkeypatch.setattr(rand_engines, "NUM_ENGINES", size)
    monkeypatch.setattr(rand_sequences, "NUM_ENGINES", size)
    sequence = rand_sequences.EngineSequence(Xorwow(3, 5), 5)
    engines, start = Xorwow(3, 5), 5
    for _ in range(2):
        head = min(count, (outputs - place % outputs) % outputs)
        tail, body = (count - head) % outputs, (count - head) // outputs
        groups: dict[Any, list[int]] = {}
        for thread in range(size):
            own = Thread(engines, (thread + start) % size)
            index = thread
            while index < body:
                groups[index] = own.group(inputs)
                index += size
            if outputs > 1 and index == body:
                if head:
                    groups["head"] = own.group(inputs)
                if tail:
                    groups["tail"] = own.group(inputs)
        start = (start + -(-count // outputs)) % size
        names = ["head"] * (head > 0) + list(range(body)) + ["tail"] * (tail > 0)
        expected = [groups[name] for name in names]
        found = sequence.numbers(Request(count, inputs, outputs, place)).tolist()
        assert found == expected


@pytest.mark.parametrize("count", [1, 7, 40, 67])
@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (2, 1), (2, 2), (4, 2)])
def test_the_order_of_philox(
    monkeypatch: pytest.MonkeyPatch, inputs: int, outputs: int, place: int, count: int
) -> None:
    threads = 4
    monkeypatch.setattr(rand_sequences, "_PHILOX_THREADS", threads)
    sequence = rand_sequences.PhiloxSequence(9, 2)
    position = 2
    for _ in range(2):
        each = 4 // inputs
        width = each * outputs
        head = min(count, (width - place % width) % width)
        tail, body = (count - head) % width, (count - head) // width
        stored: dict[Any, list[int]] = {}
        for thread in range(threads):
            at = position + 4 * thread + (0 if thread == 0 else head)
            if thread == 0:
                stored["head"] = list(range(at, at + -(-head // outputs) * inputs))
                at += len(stored["head"])
            index = thread
            while index < body:
                stored[index] = list(range(at, at + 4))
                at += 4 * threads
                index += threads
            if index == body:
                stored["tail"] = list(range(at, at + -(-tail // outputs) * inputs))
        position += -(-count // outputs) * inputs
        places = [p for name in ("head", *range(body), "tail") for p in stored[name]]
        expected = philox(9, np.array(places, np.uint64)).reshape(-1, inputs)
        found = sequence.numbers(Request(count, inputs, outputs, place))
        np.testing.assert_array_equal(found, expected)


def generator(kind: int, seed: int = 1) -> tuple[Library, ctypes.c_void_p]:
    library = Library("libhiprand.so.1")
    found = ctypes.c_void_p()
    assert library._loaded.hiprandCreateGenerator(ctypes.byref(found), kind) == 0
    assert library.hiprandSetPseudoRandomGeneratorSeed(found, ctypes.c_ulonglong(seed)) == 0
    return library, found


def size(n: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(n)


def test_sobol_is_a_van_der_corput_sequence(cp: ModuleType) -> None:
    for kind in (SOBOL32, SOBOL64):
        library, made = generator(kind)
        assert library.hiprandSetGeneratorOffset(made, ctypes.c_ulonglong(1)) == 0
        out = cp.empty(7, np.uint32)
        assert library.hiprandGenerate(made, out, size(7)) == 0
        assert (out.get() / 2.0**32).tolist() == [0.5, 0.75, 0.25, 0.375, 0.875, 0.625, 0.125]
        normal = cp.empty(4096, np.float64)
        double = ctypes.c_double
        assert library.hiprandSetGeneratorOffset(made, ctypes.c_ulonglong(1)) == 0
        call = library.hiprandGenerateNormalDouble
        assert call(made, normal, size(4095), double(2), double(3)) == 0
        assert abs(normal[:4095].get().mean() - 2) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", PSEUDO)
def test_distributions(cp: ModuleType, kind: int) -> None:
    """Kolmogorov and Smirnov, and chi squared: fixed seeds, so that the tests cannot flicker."""
    from scipy import stats  # takes longer to import than the test to run

    library, made = generator(kind, seed=42)
    n = 20001
    double, single = ctypes.c_double, ctypes.c_float
    for name, dtype in (("Uniform", "f4"), ("UniformDouble", "f8")):
        out = cp.empty(n, dtype)
        assert getattr(library, f"hiprandGenerate{name}")(made, out, size(n)) == 0
        values = out.get()
        assert 0 < values.min() <= values.max() <= 1
        assert stats.kstest(values, "uniform").pvalue > 1e-3
    for name, dtype, real in (("Normal", "f4", single), ("NormalDouble", "f8", double)):
        out = cp.empty(n, dtype)
        call = getattr(library, f"hiprandGenerate{name}")
        assert call(made, out, size(n), real(-1), real(2)) == 0
        assert stats.kstest(out.get(), "norm", (-1, 2)).pvalue > 1e-3
        call = getattr(library, f"hiprandGenerateLog{name}")
        assert call(made, out, size(n), real(0.5), real(0.25)) == 0
        assert stats.kstest(np.log(out.get()), "norm", (0.5, 0.25)).pvalue > 1e-3
    for mean in (3.5, 250.0, 5000.0):
        out = cp.empty(n, np.uint32)
        assert library.hiprandGeneratePoisson(made, out, size(n), double(mean)) == 0
        edges = stats.poisson.ppf(np.linspace(0.1, 0.9, 9), mean)
        counts = np.bincount(np.searchsorted(np.unique(edges), out.get()))
        chances = np.diff(stats.poisson.cdf(np.unique(edges), mean), prepend=0, append=1)
        assert stats.chisquare(counts, n * chances).pvalue > 1e-4


@pytest.mark.parametrize("kind", PSEUDO)
def test_seeds_and_offsets(cp: ModuleType, kind: int) -> None:
    library, made = generator(kind, seed=7)
    whole, again = cp.empty(600, np.uint32), cp.empty(600, np.uint32)
    assert library.hiprandGenerate(made, whole, size(600)) == 0
    assert library.hiprandSetPseudoRandomGeneratorSeed(made, ctypes.c_ulonglong(7)) == 0
    assert library.hiprandGenerate(made, again, size(600)) == 0
    np.testing.assert_array_equal(again.get(), whole.get())
    assert library.hiprandSetGeneratorOffset(made, ctypes.c_ulonglong(100)) == 0
    assert library.hiprandGenerate(made, again, size(500)) == 0
    np.testing.assert_array_equal(again.get()[:500], whole.get()[100:])
    assert library.hiprandSetPseudoRandomGeneratorSeed(made, ctypes.c_ulonglong(8)) == 0
    assert library.hiprandGenerate(made, again, size(600)) == 0
    assert (again != whole).mean() > 0.9


def test_statuses(cp: ModuleType) -> None:
    library, made = generator(XORWOW)
    out = cp.empty(8, np.float32)
    assert library._loaded.hiprandCreateGenerator(ctypes.byref(ctypes.c_void_p()), 7) == 103
    assert library._loaded.hiprandCreateGenerator(ctypes.byref(ctypes.c_void_p()), 502) == 1000
    assert library.hiprandGenerateUniform(made, out, size(9)) == 201, "out is too short"
    assert library.hiprandGenerateUniform(made, NULL, size(9)) == 0
    assert library.hiprandGeneratePoisson(made, out, size(8), ctypes.c_double(0)) == 104
    assert library.hiprandDestroyGenerator(made) == 0
    assert library.hiprandGenerateUniform(made, out, size(8)) == 101


def test_random_numbers_of_cupy(cp: ModuleType) -> None:
    states = [cp.random.RandomState(5) for _ in range(2)]
    draws = [(s.rand(100), s.randn(101), s.randint(0, 9, 50), s.permutation(20)) for s in states]
    for one, other in zip(*draws, strict=True):
        np.testing.assert_array_equal(one.get(), other.get())
    assert sorted(draws[0][3].get().tolist()) == list(range(20))
    assert abs(cp.random.default_rng(1).standard_normal(1000).get().mean()) < 0.2
    with pytest.raises(Exception, match="no scrambled Sobol32 generator"):
        cp.cuda.curand.createGenerator(202)
