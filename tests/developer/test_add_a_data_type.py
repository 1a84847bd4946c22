"""The page "Add a data type", step by step: int16 as a result of int8 products."""

import pytest

from tests.developer.steps import Copy, blocks

PAGE = "add_a_data_type.rst"


@pytest.mark.sweep  # `make test` performs the steps of another page, "Add an activation"
def test_the_steps_of_the_page(tmp_path):
    row, statement, device_code = blocks(PAGE, "diff")
    (use,) = blocks(PAGE, "python")
    copy = Copy(tmp_path)

    copy.apply(row)  # the backends are then asked, and none computes the product in a kernel
    done = copy.run(use, "gfx942")
    assert "assert explanation.problem.out_dtype" in done.stderr, done.stderr

    copy.apply(statement)
    copy.apply(device_code)
    done = copy.run(use, "gfx942")
    assert done.returncode == 0, done.stderr
