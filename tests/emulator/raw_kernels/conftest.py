"""CuPy, for the tests of checks before a launch."""

from types import ModuleType

import pytest

from cupygemm import emulator


@pytest.fixture(scope="module")
def emulated_cp() -> ModuleType:
    """CuPy, where kernels run on the emulated device."""
    cp = pytest.importorskip("cupy")
    if not emulator.is_enabled():
        pytest.skip("arguments are looked at on the emulated device")
    return cp
