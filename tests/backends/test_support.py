"""`Support`: which types the backends multiply, and what they say of those that they do not."""

import numpy as np
import pytest

from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.backend import CdnaBackend
from cupygemm._backends.hopper.backend import HopperBackend
from cupygemm._backends.hopper.config import HopperArch
from cupygemm._records.dtypes import FLOAT8
from cupygemm._request.layout import contiguous
from cupygemm._request.options import Options
from cupygemm._request.request import make_request

CDNA, HOPPER = CdnaBackend(ARCHS["gfx942"]), HopperBackend(HopperArch())


def request(*dtypes, result=None):
    operands = [contiguous((64, 64), np.dtype(dtype)) for dtype in dtypes]
    wanted = None if result is None else np.dtype(result)
    return make_request(*operands, options=Options(dtype=wanted))


@pytest.mark.parametrize(
    ("backend", "given", "supported"),
    [
        (CDNA, request("f2", "f2"), True),
        (CDNA, request("f8", "f8"), True),
        (CDNA, request("c8", "f2"), True),
        (CDNA, request("u1", "u1"), True),
        (CDNA, request("u1", "u1", result="i4"), False),  # int8 kernels would not be exact
        (CDNA, request("i8", "i8"), False),
        (HOPPER, request("f2", "f2"), True),
        (HOPPER, request("c8", "f2"), False),
        (HOPPER, request("i8", "i8"), False),
    ],
)
def test_what_has_a_kernel(backend, given, supported):
    support = backend.supports(given)
    assert bool(support) == supported
    assert (support.reason is None) == supported
    if not supported:
        assert f"no kernel yet for {given.types.x1} operands" in support.reason


@pytest.mark.parametrize(
    ("target", "formats", "precisions"),
    [
        ("gfx90a", (), set()),
        ("gfx942", ("e4m3fnuz", "e5m2fnuz"), {"tf32"}),
        ("gfx950", ("e4m3fn", "e5m2"), set()),
    ],
)
def test_what_each_target_has(target, formats, precisions):
    backend = CdnaBackend(ARCHS[target])
    assert backend.formats == formats
    assert backend.precisions == precisions
    for name, dtype in FLOAT8.items():
        assert bool(backend.supports(request(dtype, dtype))) == (name in formats)
        stored = make_request(
            *[contiguous((8, 8), np.dtype("f2"))] * 2, options=Options(dtype=dtype)
        )
        assert bool(backend.supports(stored)) == (name in formats)
