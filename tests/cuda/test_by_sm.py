"""Kernels that give each SM the tile of its number: exact beside other work, and in graphs.

The cost model may choose other kernels for these products, so the tests name the kernels: the
first by its order that run by SM.
"""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np
import pytest

from cupygemm import testing
from cupygemm._backends.hopper import launch as launches
from cupygemm._backends.hopper.choice import by_sm
from cupygemm._backends.hopper.choice.select import select
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._backends.hopper.plan import choose
from cupygemm._backends.hopper.product import make_product
from tests.backends.hopper.test_hopper_plan import layout_of

cp = pytest.importorskip("cupy")
BF16 = np.dtype(ml_dtypes.bfloat16)
EXTENTS = [(1, 4608, 4096), (7, 9728, 1024), (64, 4608, 2048), (200, 3072, 3072)]


def operands(m, n, k):
    x1, x2 = testing.integer_operands((m, k), (k, n), BF16)
    return x1, x2, cp.asarray(x1), cp.asarray(x2), cp.zeros((m, n), BF16)


def arch_at_hand():
    properties = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)
    return HopperArch.of_device(properties["name"].decode(), properties)


@functools.cache
def by_sm_launches(m, n, k, count=2):
    """Return launches of the kernels by SM that the cost model ranks first; all differ in tiles."""
    layout, arch = layout_of((m, k), (k, n), BF16), arch_at_hand()
    found = {}
    for candidate in select(layout.problem, arch).candidates:
        choice = choose(layout, arch, candidate.config)
        tile = candidate.config.tile_m, candidate.config.tile_n, candidate.config.transposed_c
        if choice.by_sm and tile not in found:
            found[tile] = make_product(choice)
        if len(found) == count:
            return tuple(found.values())
    raise AssertionError(f"{len(found)} kernels of {m}x{n}x{k} run by SM on {arch.part}")


def launch(number, extents, a, b, out):
    by_sm_launches(*extents)[number](a.data.ptr, b.data.ptr, out.data.ptr)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("extents", EXTENTS)
def test_repeated_launches_are_exact_and_leave_no_marks(monkeypatch, extents, number):
    given = []

    def marks(stream):
        given.append(by_sm.marks(stream))
        return given[-1]

    monkeypatch.setattr(launches, "marks", marks)
    x1, x2, a, b, out = operands(*extents)
    for _ in range(50):
        launch(number, extents, a, b, out)
    testing.assert_gemm_exact(out, x1, x2)
    words = cp.ndarray(9, np.uint32, by_sm._memory(cp.cuda.Device().id))
    assert given == [words.data.ptr] * 50
    assert not words.get().any()


def test_launches_beside_each_other_are_exact():
    """Two streams share the SMs, so that blocks of a launch run on one SM after each other."""
    cases = [(extents, operands(*extents)) for extents in EXTENTS]
    streams = [None, *(cp.cuda.Stream(non_blocking=True) for _ in range(2))]
    others = [[cp.zeros_like(case[-1]) for _, case in cases] for _ in streams[1:]]
    cp.cuda.Device().synchronize()
    for turn in range(100):
        for number, stream in enumerate(streams):
            with stream or cp.cuda.Stream.null:
                for step in range(len(cases)):
                    place = (step + number) % len(cases)
                    extents, (_, _, a, b, out) = cases[place]
                    result = others[number - 1][place] if number else out
                    launch(turn % 2, extents, a, b, result)
    cp.cuda.Device().synchronize()
    for place, (_, (x1, x2, _, _, out)) in enumerate(cases):
        for each in (out, *(outs[place] for outs in others)):
            testing.assert_gemm_exact(each, x1, x2)


def test_a_graph_is_exact():
    x1, x2, a, b, out = operands(*EXTENTS[0])
    launch(0, EXTENTS[0], a, b, out)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(3):
            launch(0, EXTENTS[0], a, b, out)
        graph = stream.end_capture()
        out[...] = 0
        for _ in range(20):
            graph.launch(stream)
        stream.synchronize()
    testing.assert_gemm_exact(out, x1, x2)
