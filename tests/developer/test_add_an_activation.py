"""The page "Add an activation", step by step: a squared ReLU, fused and unfused."""

import pytest

from tests.developer.steps import Copy, blocks, page_text

PAGE = "add_an_activation.rst"
SENTENCE = (
    "activation='squared_relu' has a row in cupygemm/_epilogue/activations.py but no device code: "
    "define struct squared_relu in kernels/common/activation.hpp"
)


@pytest.mark.slow
def test_the_steps_of_the_page(tmp_path):
    row, device_code = blocks(PAGE, "diff")
    (use,) = blocks(PAGE, "python")
    copy = Copy(tmp_path)

    copy.apply(row)
    done = copy.run(use, "gfx942")
    assert SENTENCE in done.stderr
    assert done.stderr.count("error:") == 1  # the compiler has nothing else to say
    assert SENTENCE in " ".join(page_text(PAGE).split())

    copy.apply(device_code)
    done = copy.run(use, "gfx942")
    assert done.returncode == 0, done.stderr
