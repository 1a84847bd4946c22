"""The generic tests of products under a backend that multiplies on the host with NumPy.

They run in a process of their own, since plans and devices know the backends that were registered
when they were made. What they show is that nothing outside a backend depends on which one it is.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tables import swept

ROOT = Path(__file__).parents[2]
# `make test` runs the generic tests of products. `make test-all` also runs those of their options
# and of functions that are made of products.
FILES = {
    "products": tuple(
        f"products/test_{name}" for name in "matmul matmul_errors products typed_products".split()
    ),
    "options": (
        "epilogue/test_epilogue",
        *(f"products/test_{name}" for name in "blas complex epilogue_calls grouped".split()),
    ),
    "functions": tuple(
        f"products/test_{name}"
        for name in (
            "contraction einsum float8 in_place integer_products keywords matmul_fuzz numpys_tests"
        ).split()
    ),
}
OTHERS = {  # tests of something else, by their reasons
    "epilogue/test_epilogue.py::test_activations_by_the_unit_in_the_last_place": (
        "its units are those of the kernels' own functions"
    ),
    "products/test_matmul_errors.py::test_products_that_are_too_large_for_a_kernel": (
        "NumPy multiplies them, if it has the memory"
    ),
    "products/test_complex.py::test_nan_and_infinities_are_where_the_definition_puts_them": (
        "the BLAS library under NumPy multiplies complex infinities in its own way"
    ),
    "products/test_complex.py::test_tiles_shared_along_k_and_options": (
        "its long sums are for kernels that share tiles"
    ),
    "products/test_epilogue_calls.py::test_other_targets": "its processes lack the backend",
    "products/test_float8.py::test_a_device_without_8_bit_floats_says_so": (
        "its process lacks the backend"
    ),
    "products/test_float8.py::test_refusals_leave_out_alone": (
        "the device's own backend multiplies the formats that the one in NumPy refuses"
    ),
    "products/test_grouped.py::test_the_configuration_suits_the_sum_of_the_tiles": (
        "it asks for CDNA's configuration"
    ),
}
LEAST_PRODUCTS = {"products": 290, "options": 195, "functions": 590}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["products", *swept("options", "functions")])
def test_generic_tests_of_products_pass_under_a_backend_in_numpy(kind):
    files = [f"tests/{name}.py" for name in FILES[kind]]
    deselected = [f"--deselect=tests/{name}" for name in OTHERS]
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    if kind == "products":  # the other two are themselves part of a sweep
        options += ["-m", "not sweep"]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "--device", "emulated", "--backend", "numpy", *options,
         *deselected, *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-5000:] + process.stderr[-5000:]
    products = re.search(r"NumPy backend: (\d+) products", process.stdout)
    assert products, process.stdout[-500:]
    assert int(products[1]) >= LEAST_PRODUCTS[kind]


def test_the_model_stays_short():
    text = Path(__file__).with_name("numpy_backend.py").read_text()
    assert len(text.splitlines()) <= 200


def test_the_page_shows_every_part_of_the_model():
    page = (ROOT / "docs/developer/add_a_backend.rst").read_text()
    model = Path(__file__).with_name("numpy_backend.py").read_text()
    titles = re.findall(r"^# -- (.*?) -+$", model, re.MULTILINE)
    assert re.findall(r":start-after: # -- (.*)", page) == titles
    assert re.findall(r":end-before: # -- (.*)", page) == titles[1:]
