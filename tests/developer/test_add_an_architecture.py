"""The page "Add an architecture", step by step: what CDNA3 and CDNA4 have in common."""

import pytest

from tests.developer.steps import Copy, blocks

PAGE = "add_an_architecture.rst"
TARGET = "gfx9-4-generic"
PROFILE = """
from cupygemm.emulator.profiling.parts import PARTS
PARTS["gfx9-4-generic"]
"""


@pytest.mark.sweep  # `make test` performs the steps of another page, "Add an activation"
def test_the_steps_of_the_page(tmp_path):
    kernels, emulator = blocks(PAGE, "diff")
    (use,) = blocks(PAGE, "python")
    copy = Copy(tmp_path)

    copy.apply(kernels)
    done = copy.run(use, TARGET)
    assert f"target '{TARGET}' cannot be emulated" in done.stderr

    copy.apply(emulator)
    done = copy.run(use, TARGET)
    assert done.returncode == 0, done.stderr

    # What the page leaves out says so.
    done = copy.run(PROFILE, TARGET)
    assert f"{TARGET} has no row in cupygemm/emulator/profiling/parts.py; add one" in done.stderr
