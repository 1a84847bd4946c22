"""Lines in the emulator's own headers, in a cached program from any installation."""

from __future__ import annotations

from cupygemm.emulator.code_object.line_table import EMULATOR, OWN_FOLDER, LineTable
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = """
extern "C" __global__ void k(int* x) {
    atomicAdd(x + threadIdx.x, 1);
}
"""


def test_no_path_of_this_installation_is_in_a_program() -> None:
    for options in ((), ("-g",)):
        code = compile_program(SOURCE, "k.hip", target_name="gfx942", options=options).code
        assert str(EMULATOR).encode() not in code
        assert OWN_FOLDER.encode() in code


def test_headers_are_found_where_this_installation_has_them() -> None:
    table = LineTable(compile_program(SOURCE, "k.hip", target_name="gfx942").code)
    files = {line[0] for line in table._lines if line is not None}
    headers = {each for each in files if each.startswith(str(EMULATOR))}
    assert files - headers == {"k.hip"}
    assert headers
    assert all(table._sources.lines(each) for each in headers)
    # The instructions of such lines belong to the user's calls of the functions.
    lines = {table.find(address) for address in table._addresses} - {None}
    assert {file for file, _ in lines} == {"k.hip"}
    assert {table.quote(line) for line in lines} >= {"atomicAdd(x + threadIdx.x, 1);"}
