"""The source of a program in its code object: an ELF file that stays valid."""

from __future__ import annotations

import io

from elftools.elf.elffile import ELFFile

from cupygemm.emulator.code_object.kept_source import SECTION, Sources, with_source
from cupygemm.emulator.runtime.compile import compile_program

SOURCE = 'extern "C" __global__ void k(int* x) {\n    *x = 1; // ünits\n}\n'


def test_the_sections_of_a_code_object_stay() -> None:
    code = compile_program(SOURCE, "name.cu", target_name="gfx942", rtc=False).code
    assert Sources(code).lines("name.cu") == []
    kept = with_source(code, "name.cu", SOURCE)
    before, after = (ELFFile(io.BytesIO(each)) for each in (code, kept))
    names = [section.name for section in before.iter_sections()]
    assert [section.name for section in after.iter_sections()] == [*names, SECTION]
    for section in before.iter_sections():
        if section.name != ".shstrtab":
            assert after.get_section_by_name(section.name).data() == section.data()
    sources = Sources(kept)
    assert sources.lines("name.cu") == SOURCE.splitlines()
    assert sources.quote("name.cu", 2) == "*x = 1; // ünits"
    assert [sources.quote("name.cu", line) for line in (0, 4)] == ["", ""]
    assert sources.quote("other.cu", 1) == ""


def test_a_very_long_program_is_not_kept() -> None:
    code = compile_program(SOURCE, "name.cu", target_name="gfx942", rtc=False).code
    assert with_source(code, "name.cu", "\n" * (1 << 22)) == code


def test_hiprtc_keeps_what_users_write() -> None:
    code = compile_program(SOURCE, "a1" * 20 + ".hsaco.cu", target_name="gfx942").code
    assert Sources(code).quote("kernel.cu", 2) == "*x = 1; // ünits"
    generated = "#include <cupy/complex.cuh>\n" + SOURCE
    headers = {"cupy/complex.cuh": ""}
    code = compile_program(generated, "name.cu", target_name="gfx942", headers=headers).code
    assert Sources(code).lines("name.cu") == []
