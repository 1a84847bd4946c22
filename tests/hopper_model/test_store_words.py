"""The kernel that sets words, such as counters, on the modelled GPU."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest

from cupygemm._backends.solver_kernels import STORE_WORDS
from cupygemm._solvers.common import kernels
from tests.hopper_model.device import HostKernel, Model


@pytest.mark.parametrize(("count", "value"), [(1, 1), (256, 0), (300, -7)])
def test_only_the_words_that_were_asked_for_are_set(count, value):
    words = np.full(count + 2, 99, np.int64)
    kernel = HostKernel(
        Model(), kernels.source(STORE_WORDS, "d", {"threads": 256}), STORE_WORDS.entry
    )
    packed = struct.pack(STORE_WORDS.arguments, words.ctypes.data + 8, value, count, 0)
    argument = ctypes.create_string_buffer(packed, len(packed))
    kernel.launch((-(-count // 256), 1, 1), (256, 1, 1), 0, ctypes.addressof(argument))
    assert words[0] == words[-1] == 99
    assert (words[1:-1] == value).all()
