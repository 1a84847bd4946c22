"""The page "Add an instruction", step by step: its example is taken out of a copy first."""

import pytest

from tests.developer.steps import ROOT, Copy, blocks

PAGE = "add_an_instruction.rst"
COMPARE = f"""
import sys
sys.path.append({str(ROOT)!r})
from tests.emulator.units import test_native_alu as test
test.check_mnemonic("v_xad_u32", "gfx942", 20)
"""


@pytest.mark.slow
@pytest.mark.sweep  # compiles the native library again
def test_the_steps_of_the_page(tmp_path):
    python_step, native_form = blocks(PAGE, "diff")
    record, use = blocks(PAGE, "python")
    copy = Copy(tmp_path)
    for diff in (python_step, native_form):
        copy.apply(diff, undo=True)

    done = copy.run(f"{record}\nprint('decoded')\n{use}", "gfx942")
    assert done.stdout == "decoded\n"
    assert "UnsupportedInstruction: v_xad_u32 v1, v2, v3, v2" in done.stderr

    copy.apply(python_step)
    assert copy.run(use, "gfx942").stdout == "in Python\n"

    copy.apply(native_form)
    done = copy.run(use + COMPARE, "gfx942")
    assert done.stdout == "native\n"
    assert done.returncode == 0, done.stderr
