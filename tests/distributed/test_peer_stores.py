"""Copies that one kernel makes: any sizes, alignments and numbers."""

import numpy as np
import pytest

from cupygemm._distributed.peer_stores import Copy, store_copies

ALIGNED = ([(0, 0, 4096)], [(16, 64, 160), (0, 4096, 16), (512, 6000 // 16 * 16, 2048)])
UNALIGNED = ([(3, 5, 1000)], [(0, 1, 4097), (7, 5000, 0), (9, 8000, 1)])
MANY = [(100 * n, 8000 - 100 * n, 70 + n) for n in range(20)]


@pytest.mark.parametrize("copies", [*ALIGNED, *UNALIGNED, MANY, []], ids=repr)
def test_all_bytes_arrive_and_no_others_change(cp, copies):
    source = np.random.default_rng(0).integers(0, 255, 8192, dtype=np.uint8)
    expected = np.zeros(10000, np.uint8)
    for start, to, nbytes in copies:
        expected[to : to + nbytes] = source[start : start + nbytes]
    held, found = cp.asarray(source), cp.zeros(10000, np.uint8)
    from_, to_ = held.data.ptr, found.data.ptr
    assert from_ % 16 == to_ % 16 == 0
    store_copies(
        [Copy(from_ + start, to_ + to, nbytes) for start, to, nbytes in copies],
        cp.cuda.get_current_stream(),
    )
    assert (found.get() == expected).all()
