"""Every function that CuPy's wheel binds exists, and its implementation is documented."""

from __future__ import annotations

import csv
import ctypes
import functools
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from elftools.elf.elffile import ELFFile

from cupygemm.emulator import _session
from cupygemm.emulator.host_libraries import table
from cupygemm.emulator.host_libraries.connected import LIBRARIES
from cupygemm.emulator.host_libraries.library import HostLibrary
from cupygemm.emulator.host_libraries.listing import read_listing
from tests.emulator.host_libraries.calls import Library

DOCUMENTED = Path(__file__).parents[3] / "docs" / "reference" / "rocm_libraries.csv"


@functools.cache
def bound_by_the_wheel() -> set[str]:
    """Return the undefined symbols of CuPy's extension modules."""
    names: set[str] = set()
    for package in ("cupy", "cupy_backends", "cupyx"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        for folder in spec.submodule_search_locations or ():
            for path in Path(folder).rglob("*.so"):
                with path.open("rb") as file:
                    symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
                    names |= {one.name for one in symbols if one["st_shndx"] == "SHN_UNDEF"}
    return names


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: one.stem)
def test_every_function_that_the_wheel_binds_is_there(
    cp: ModuleType, library: type[HostLibrary]
) -> None:
    listed = {entry.name for entry in read_listing(library.stem)}
    listed |= set(re.findall(r"\b(nccl\w+)\(", library.extra_source))
    bound = {name for name in bound_by_the_wheel() if re.match(f"{library.stem}[A-Z_]", name)}
    assert bound == listed
    loaded = ctypes.CDLL(library.soname)
    assert all(hasattr(loaded, name) for name in listed)


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: one.stem)
def test_every_method_implements_functions_that_are_listed(library: type[HostLibrary]) -> None:
    families = {entry.family for entry in read_listing(library.stem)}
    assert set(library.methods()) <= families


def test_the_documented_table_is_the_code_s() -> None:
    with DOCUMENTED.open(newline="", encoding="utf-8") as file:
        header, *documented = (tuple(row) for row in csv.reader(file))
    assert header == ("Library", "Functions", "Computed by")
    remedy = f"python -m cupygemm.emulator.host_libraries.table > {DOCUMENTED}"
    assert documented == list(table.rows()), remedy


def test_a_function_without_a_method_fails_with_its_name(
    cp: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    blas = _session._host_libraries["hipblas"]
    entry = next(one for one in read_listing("hipblas") if one.name == "hipblasSsyrk")
    status = blas._answer(entry, None)(*[0] * len(entry.parameters))
    assert status == blas.statuses["not_supported"]
    message = blas.take_message(status)
    assert "does not support hipblasSsyrk" in message
    assert message.endswith("docs/reference/rocm_libraries.rst")


def test_a_failure_reaches_the_user_with_its_reason(cp: ModuleType) -> None:
    from cupy_backends.cuda.libs import cublas

    with pytest.raises(cublas.CUBLASError, match="INVALID_VALUE: m=-1 is negative"):
        cublas.sgeam(cp.cuda.Device().cublas_handle, 0, 0, -1, 1, 0, 0, 1, 0, 0, 1, 0, 1)
    assert Library("libhipblas.so.3").hipblasDestroy(ctypes.c_void_p(1234)) == 1


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: one.stem)
def test_the_parts_of_a_library_do_not_hide_each_other(library: type[HostLibrary]) -> None:
    owners: dict[str, type] = {}
    for part in library.__mro__[1:-1]:
        for name, member in vars(part).items():
            if callable(member) and not name.startswith("__"):
                other = owners.setdefault(name, part)
                assert issubclass(other, part), f"{name} of {part} is hidden by {other}'s"
