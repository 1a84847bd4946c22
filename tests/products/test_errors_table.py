"""The documentation's table of errors: each row is run as printed."""

import builtins
import csv
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import cupygemm

TABLE = Path(__file__).parents[2] / "docs" / "reference" / "errors.csv"
with TABLE.open(newline="", encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


@pytest.mark.parametrize("row", ROWS, ids=[row["Call"] for row in ROWS])
def test_row(cp, row):
    def ones(*shape, dtype=np.float32):
        return cp.asarray(np.ones(shape, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))

    out = cp.full((4, 4), 9, np.float32)
    names = {name: getattr(cupygemm, name) for name in cupygemm.__all__}
    text = ".*".join(re.escape(part) for part in row["Text"].split("…"))
    error = getattr(builtins, row["Exception"], None) or getattr(np.linalg, row["Exception"])
    with pytest.raises(error, match=f"(?s)^{text}$"):
        eval(row["Call"], names | {"f": ones, "out": out, "cupy": cp, "numpy": np})
    assert (cp.asnumpy(out) == 9).all()


def test_the_table_covers_every_function():
    """Every public function has a row, except those that describe, wrap or pass on to matmul."""
    calls = " ".join(row["Call"] for row in ROWS)
    others = {
        "Explanation",
        "__version__",
        "accelerate",
        "einsum_path",
        "explain",
        "linalg",
        "Tuned",
    }
    covered = {name for name in cupygemm.__all__ if f"{name}(" in calls}
    assert set(cupygemm.__all__) - covered - others <= {"inner", "outer", "syrk", "tune", "vecmat"}
