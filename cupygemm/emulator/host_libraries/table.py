"""Tabulate how each library function that CuPy's ROCm wheel binds is implemented.

``python -m cupygemm.emulator.host_libraries.table`` prints the table of the documentation.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator

from cupygemm.emulator.host_libraries.connected import LIBRARIES
from cupygemm.emulator.host_libraries.listing import read_listing

KERNELS = "kernels of cupygemm"
HOST = "host"
NOTHING = "not supported"


def rows() -> Iterator[tuple[str, str, str]]:
    """Return the table's rows.

    Yields
    ------
    tuple of str
        The library's file, the listing's name of a family of functions, and its implementation.
    """
    for library in LIBRARIES:
        methods = library.methods()
        for family in dict.fromkeys(entry.family for entry in read_listing(library.stem)):
            is_product = library.stem == "hipblas" and "emm" in family
            by = KERNELS if is_product else HOST
            yield library.soname, family, by if family in methods else NOTHING


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("Library", "Functions", "Computed by"))
    writer.writerows(rows())
