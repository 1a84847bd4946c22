"""hipRAND's device interface: known answers, and the engines of the generators on the host."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from cupygemm.emulator.host_libraries import rand_distributions
from cupygemm.emulator.host_libraries.rand_engines import Engines, Mrg32k3a, Xorwow, philox
from tests.tables import swept

pytestmark = pytest.mark.usefixtures("cp")
SOURCE = r"""
#include <hiprand/hiprand_kernel.h>
template <typename State> __device__ void draw(unsigned long long seed, unsigned long long offset,
                                               unsigned* words, float* reals, double* wide) {
    State state;
    hiprand_init(seed, threadIdx.x, offset, &state);
    for (int i = 0; i < 5; ++i) words[5 * threadIdx.x + i] = hiprand(&state);
    float* mine = reals + 6 * threadIdx.x;
    mine[0] = hiprand_uniform(&state);
    for (int i = 1; i < 4; ++i) mine[i] = hiprand_normal(&state);
    mine[4] = hiprand_log_normal(&state, 0.5f, 0.25f);
    mine[5] = hiprand_uniform(&state);
    wide[3 * threadIdx.x] = hiprand_uniform_double(&state);
    wide[3 * threadIdx.x + 1] = hiprand_normal_double(&state);
    wide[3 * threadIdx.x + 2] = hiprand_normal_double(&state);
}
#define DRAW(name, State)                                                                          \
    extern "C" __global__ void name(unsigned long long seed, unsigned long long offset,            \
                                    unsigned* words, float* reals, double* wide) {                 \
        draw<State>(seed, offset, words, reals, wide);                                             \
    }
DRAW(philox, hiprandStatePhilox4_32_10_t)
DRAW(xorwow, hiprandState_t)
DRAW(mrg, hiprandStateMRG32k3a_t)

extern "C" __global__ void block(unsigned long long key, unsigned long long low,
                                 unsigned long long high, uint4* out) {
    hiprandStatePhilox4_32_10_t state;
    hiprand_init(key, high, 0, &state);
    for (int i = 0; i < 4; ++i) skipahead(low, &state);
    *out = hiprand4(&state);
}
"""
JUMPS = r"""
#include <hiprand/hiprand_kernel.h>
extern "C" __global__ void skip(unsigned* x) {
    hiprandState one, other;
    hiprand_init(7, 5, 1000003, &one);
    hiprand_init(7, 2, 3, &other);
    skipahead(1000000, &other);
    skipahead_sequence(3, &other);
    x[0] = hiprand(&one), x[1] = hiprand(&other);
    hiprandStateMRG32k3a first, second;
    hiprand_init(7, 5, 1000003, &first);
    hiprand_init(7, 5, 0, &second);
    skipahead(1000003, &second);
    x[2] = hiprand(&first), x[3] = hiprand(&second);
    hiprand_init(7, 0, 0, &first);
    hiprand_init(7, 1ull << 51, 0, &second);
    skipahead_sequence(1, &first);
    x[4] = hiprand(&first), x[5] = hiprand(&second);
}
"""
STATES = {
    "philox": "hiprandStatePhilox4_32_10_t",
    "xorwow": "hiprandState_t",
    "mrg": "hiprandStateMRG32k3a_t",
}
POISSON = r"""
#include <hiprand/hiprand_kernel.h>
extern "C" __global__ void numbers(double lambda, unsigned* counts, double* uniform,
                                   double* normal) {
    State one, other, third;
    hiprand_init(99, threadIdx.x, 0, &one);
    other = third = one;
    for (int i = 0; i < 8; ++i) counts[8 * threadIdx.x + i] = hiprand_poisson(&one, lambda);
    for (int i = 0; i < 99; ++i) uniform[99 * threadIdx.x + i] = hiprand_uniform_double(&other);
    for (int i = 0; i < 8; ++i) normal[8 * threadIdx.x + i] = hiprand_normal_double(&third);
}
"""
FOUR = r"""
extern "C" __global__ void four(double lambda, uint4* out) {
    hiprandStatePhilox4_32_10_t state;
    hiprand_init(99, threadIdx.x, 0, &state);
    for (int i = 0; i < 2; ++i) out[2 * threadIdx.x + i] = hiprand_poisson4(&state, lambda);
}
"""
THREADS, SEED, OFFSET = 6, 0x1234_5678_9ABC_DEF0, 6


@pytest.fixture(scope="module")
def kernels(cp: ModuleType) -> Any:
    return cp.RawModule(code=SOURCE)


def expected_numbers(name: str) -> np.ndarray:
    """Return the first 24 raw numbers of each thread."""
    if name == "philox":
        return philox(SEED, np.arange(OFFSET, OFFSET + 24, dtype=np.uint64))[None]
    kind: type[Engines] = Xorwow if name == "xorwow" else Mrg32k3a
    engines = kind(SEED, 0)
    engines.draw(np.arange(THREADS), OFFSET)
    return engines.draw(np.arange(THREADS), 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["philox", "xorwow", "mrg"])
def test_the_numbers_are_those_of_the_generators(cp: ModuleType, kernels: Any, name: str) -> None:
    words, reals = cp.zeros((THREADS, 5), "u4"), cp.zeros((THREADS, 6), "f4")
    wide = cp.zeros((THREADS, 3), "f8")
    arguments = np.uint64(SEED), np.uint64(OFFSET), words, reals, wide
    kernels.get_function(name)((1,), (THREADS,), arguments)
    numbers = expected_numbers(name)
    rows = len(numbers)  # of Philox, one subsequence is known
    kind = "mrg" if name == "mrg" else "word"
    integers = rand_distributions.mrg_integers(numbers) if name == "mrg" else numbers
    np.testing.assert_array_equal(words.get()[:rows], integers[:, :5])

    def made(distribution: Any, first: int) -> np.ndarray:
        return distribution.apply(numbers[:, first : first + distribution.inputs])

    uniform = rand_distributions.uniform(kind, "f4")
    normal = rand_distributions.normal(kind, "f4", 0, 1, log=False)
    found = reals.get()[:rows]
    np.testing.assert_array_equal(found[:, 0], made(uniform, 5).ravel())
    np.testing.assert_allclose(found[:, 1:3], made(normal, 6), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[:, 3], made(normal, 8)[:, 0], rtol=1e-5, atol=1e-6)
    logs = np.exp(0.5 + 0.25 * made(normal, 8)[:, 1])
    np.testing.assert_allclose(found[:, 4], logs, rtol=1e-5)
    np.testing.assert_array_equal(found[:, 5], made(uniform, 10).ravel())
    uniform, normal = (
        rand_distributions.uniform(kind, "f8"),
        rand_distributions.normal(kind, "f8", 0, 1, log=False),
    )
    found_wide = wide.get()[:rows]
    np.testing.assert_array_equal(found_wide[:, 0], made(uniform, 11).ravel())
    after = 11 + uniform.inputs
    np.testing.assert_allclose(found_wide[:, 1:], made(normal, after), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "low", "high", "answer"),
    [
        (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**64 - 1, 2**64 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            0x299F31D0A4093822,
            0x85A308D3243F6A88,
            0x0370734413198A2E,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers(
    cp: ModuleType, kernels: Any, key: int, low: int, high: int, answer: str
) -> None:
    """Random123's published answers for philox4x32_10."""
    out = cp.zeros(4, "u4")
    kernels.get_function("block")(
        (1,), (1,), (np.uint64(key), np.uint64(low), np.uint64(high), out)
    )
    assert " ".join(f"{word:08x}" for word in out.get()) == answer


def test_jumps_add_up(cp: ModuleType) -> None:
    x = cp.zeros(6, "u4")
    cp.RawKernel(JUMPS, "skip")((1,), (1,), (x,))
    assert x.get()[::2].tolist() == x.get()[1::2].tolist()


def poisson(mean: float, uniform: Iterator[float]) -> int:
    """Return a number by the methods of Knuth, and of Atkinson (PA)."""
    if mean < 64:
        product, count = next(uniform), 0
        while product > math.exp(-mean):
            product, count = product * next(uniform), count + 1
        return count
    beta = math.pi / math.sqrt(3 * mean)
    k = math.log(0.767 - 3.36 / mean) - mean - math.log(beta)
    while True:
        u = next(uniform)
        x = mean - math.log((1 - u) / u) / beta
        count = math.floor(x + 0.5)
        if count >= 0:
            y, v = beta * (mean - x), next(uniform)
            bound = k + count * math.log(mean) - math.lgamma(count + 1)
            if y + math.log(v / (1 + math.exp(y)) ** 2) <= bound:
                return count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean"),
    [
        *(("philox", mean) for mean in (3.5, 64.0, 5000.0)),
        *swept(("xorwow", 100.0), ("mrg", 64.0), width=2),
    ],
)
def test_poisson_numbers(cp: ModuleType, name: str, mean: float) -> None:
    code = f"{POISSON.replace('State', STATES[name])}{FOUR if name == 'philox' else ''}"
    module = cp.RawModule(code=code)
    counts, normal = cp.empty((64, 8), "u4"), cp.empty((64, 8))
    uniform = cp.empty((64, 99))
    module.get_function("numbers")((1,), (64,), (cp.float64(mean), counts, uniform, normal))
    if mean > 4000:
        expected = np.round(np.sqrt(mean) * normal.get() + mean)
    else:
        streams = [iter(row) for row in uniform.get().tolist()]
        expected = np.array([[poisson(mean, row) for _ in range(8)] for row in streams])
    assert (counts.get() == expected).all()
    assert abs(expected.mean() - mean) < 4 * (mean / expected.size) ** 0.5
    if name == "philox":
        four = cp.empty_like(counts)
        module.get_function("four")((1,), (64,), (cp.float64(mean), four))
        assert (four == counts).all()


@pytest.mark.slow
def test_rocrand_has_the_same_numbers(cp: ModuleType) -> None:
    code = r"""
    #include <rocrand_kernel.h>
    extern "C" __global__ void both(unsigned* words, float* reals) {
        rocrand_state_philox4x32_10 state;
        hiprandStatePhilox4_32_10_t same;
        rocrand_init(5, threadIdx.x, 3, &state);
        hiprand_init(5, threadIdx.x, 3, &same);
        words[2 * threadIdx.x] = rocrand(&state), words[2 * threadIdx.x + 1] = hiprand(&same);
        reals[2 * threadIdx.x] = rocrand_uniform4(&state).w;
        reals[2 * threadIdx.x + 1] = hiprand_uniform4(&same).w;
    }
    """
    words, reals = cp.zeros((8, 2), "u4"), cp.zeros((8, 2), "f4")
    cp.RawModule(code=code).get_function("both")((1,), (8,), (words, reals))
    for numbers in (words, reals):
        assert (numbers[:, 0] == numbers[:, 1]).all()
        assert len(set(numbers[:, 0].tolist())) == 8
