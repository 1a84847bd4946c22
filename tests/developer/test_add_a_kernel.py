"""The page "Add a kernel": its configuration is built, and compiles without a spill."""

import pytest

from tests.developer.steps import Copy, blocks, page_text

PAGE = "add_a_kernel.rst"


@pytest.mark.sweep  # `make test` performs the steps of another page, "Add an activation"
def test_the_configuration_of_the_page(tmp_path):
    (row,) = blocks(PAGE, "diff")
    (use,) = blocks(PAGE, "python")
    copy = Copy(tmp_path)

    assert "not enough values to unpack" in copy.run(use, "gfx942").stderr

    copy.apply(row)
    done = copy.run(use, "gfx942")
    assert done.returncode == 0, done.stderr
    assert "vgpr_spills=0, sgpr_spills=0" in done.stdout
    assert "main loop of cupygemm_gemm for gfx942" in done.stdout

    # The sentence that the page quotes, on one wave too many.
    copy.apply(row, undo=True)
    resident = "1               1           16"
    assert row.count(resident) == 1
    copy.apply(row.replace(resident, "1               2           16"))
    asked = use.split("assert")[0] + 'print(check(config, problem, ARCHS["gfx942"]))'
    sentence = copy.run(asked, "gfx942").stdout.strip()
    assert sentence == "waves_per_simd = 2: LDS has room for 1 wave on a SIMD"
    assert sentence in " ".join(page_text(PAGE).split())
