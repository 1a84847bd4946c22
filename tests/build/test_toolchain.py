"""The compilers: every one that is here makes code objects and host libraries, and says why not."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from cupygemm._build import host_compiler
from cupygemm._build import toolchain as _toolchain
from cupygemm._build.host_compiler import host_shared_library
from cupygemm._build.toolchain import CompileError, Toolchain, ToolchainError, find_toolchain
from cupygemm.emulator.code_object import read_resources, target_of

KERNEL = """
extern "C" __attribute__((global)) void twice(float* x, int n) {
    int i = __builtin_amdgcn_workitem_id_x();
    if (i < n) x[i] *= FACTOR;
}
"""


def installed() -> list[str]:
    finders = {
        "rocm": _toolchain._rocm_toolchain,
        "clang": _toolchain._clang_toolchain,
        "zig": _toolchain._zig_toolchain,
    }
    return [name for name, finder in finders.items() if finder() is not None]


@pytest.fixture(params=installed())
def toolchain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    monkeypatch.setenv("CUPYGEMM_TOOLCHAIN", request.param)
    return find_toolchain()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "twice.hip"
    path.write_text(KERNEL)
    return path


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_compile_makes_a_code_object(
    toolchain: Toolchain, source: Path, tmp_path: Path, target: str
) -> None:
    output = tmp_path / "twice.hsaco"
    assert toolchain.compile_hip(source, output, target=target, options=["-DFACTOR=2"]) == ""
    data = output.read_bytes()
    assert target_of(data) == target
    assert list(read_resources(data)) == ["twice"]


def test_assembly_goes_both_ways(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    assembly, output = tmp_path / "twice.s", tmp_path / "twice.hsaco"
    toolchain.compile_to_assembly(source, assembly, target="gfx942", options=["-DFACTOR=2"])
    assert "v_cmp_gt_i32" in assembly.read_text()
    toolchain.assemble(assembly, output, target="gfx942")
    assert list(read_resources(output.read_bytes())) == ["twice"]


def test_preprocessing_resolves_macros_and_keeps_no_paths(
    toolchain: Toolchain, source: Path, tmp_path: Path
) -> None:
    text = toolchain.preprocess(source, target="gfx942", options=["-DFACTOR=17"])
    assert "x[i] *= 17;" in text
    assert str(tmp_path) not in text


def test_an_error_shows_the_compilers_log(
    toolchain: Toolchain, source: Path, tmp_path: Path
) -> None:
    with pytest.raises(CompileError, match="undeclared identifier 'FACTOR'") as caught:
        toolchain.compile_hip(source, tmp_path / "out", target="gfx942")
    assert "twice.hip:4" in caught.value.log
    assert "--offload-arch=gfx942" in caught.value.command
    assert not (tmp_path / "out").exists()


def test_an_assembler_error_shows_its_log(toolchain: Toolchain, tmp_path: Path) -> None:
    path = tmp_path / "wrong.s"
    path.write_text("v_no_such_instruction v0, v1\n")
    with pytest.raises(CompileError, match=r"wrong\.s does not assemble[^$]*invalid instruction"):
        toolchain.assemble(path, tmp_path / "out", target="gfx942")


def test_warnings_are_handed_back(toolchain: Toolchain, source: Path, tmp_path: Path) -> None:
    options = ["-DFACTOR=2", "-Wall"]
    source.write_text(KERNEL + "static int unused;\n")
    log = toolchain.compile_hip(source, tmp_path / "out", target="gfx942", options=options)
    assert "unused variable 'unused'" in log


def test_toolchains_agree_on_the_registers(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for name in installed():
        monkeypatch.setenv("CUPYGEMM_TOOLCHAIN", name)
        output = tmp_path / name
        find_toolchain().compile_hip(source, output, target="gfx942", options=["-DFACTOR=2"])
        kernel = read_resources(output.read_bytes())["twice"]
        found.add((kernel[".vgpr_count"], kernel[".sgpr_count"], kernel[".kernarg_segment_size"]))
    assert len(found) == 1


def test_ziglangs_clang_is_preferred_to_one_on_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def found() -> str:
        _toolchain._find_toolchain.cache_clear()
        return find_toolchain().name

    clang = tmp_path / "clang++"
    clang.write_text("#!/bin/sh\necho clang version 99.0.0 amdgcn\n")
    clang.chmod(0o755)
    (tmp_path / "ld.lld").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_toolchain, "_rocm_toolchain", lambda: None)
    monkeypatch.delenv("CUPYGEMM_TOOLCHAIN", raising=False)
    try:
        if _toolchain.find_zig() is not None:
            assert found() == "zig"
        monkeypatch.setattr(_toolchain, "find_zig", lambda: None)
        assert found() == "clang"
    finally:
        _toolchain._find_toolchain.cache_clear()


def test_an_unknown_toolchain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUPYGEMM_TOOLCHAIN", "gcc")
    with pytest.raises(ToolchainError, match=r"'gcc'.*rocm, zig, clang"):
        find_toolchain()


def test_a_missing_toolchain_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _toolchain._find_toolchain.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUPYGEMM_TOOLCHAIN", "clang")
    with pytest.raises(ToolchainError, match="no clang of version 22 or later"):
        find_toolchain()
    _toolchain._find_toolchain.cache_clear()


def test_without_any_compiler_the_message_names_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _toolchain._find_toolchain.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))
    monkeypatch.delenv("CUPYGEMM_TOOLCHAIN", raising=False)
    monkeypatch.setattr(_toolchain, "find_zig", lambda: None)
    if "rocm" not in installed():
        with pytest.raises(ToolchainError, match="pip install ziglang"):
            find_toolchain()
    _toolchain._find_toolchain.cache_clear()


def test_host_library_has_its_soname_and_symbol_versions(tmp_path: Path) -> None:
    source, script, output = tmp_path / "a.c", tmp_path / "a.map", tmp_path / "a.so"
    source.write_text("int answer(void) { return 42; }\nint hidden(void) { return 1; }\n")
    script.write_text("v_1.0 { global: answer; local: *; };\n")
    host_shared_library(
        [source], output, soname="libanswer.so.7", version_script=script, options=["-nostdlib"]
    )
    library = ctypes.CDLL(str(output))
    assert library.answer() == 42
    assert not hasattr(library, "hidden")
    data = output.read_bytes()
    assert b"libanswer.so.7\0" in data
    assert b"v_1.0\0" in data


def test_host_library_error_shows_the_log(tmp_path: Path) -> None:
    source = tmp_path / "wrong.c"
    source.write_text("int f(void) { return nothing; }\n")
    with pytest.raises(CompileError, match=r"wrong\.c does not compile[^$]*undeclared"):
        host_shared_library([source], tmp_path / "out.so", options=["-nostdlib"])


def test_zig_is_asked_for_its_versions_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path / "cache"))
    zig, asked = tmp_path / "zig", tmp_path / "asked"

    def write(version: str) -> None:
        zig.unlink(missing_ok=True)
        zig.write_text(f'#!/bin/sh\necho "$@" >>{asked}\necho {version} $1\n')
        zig.chmod(0o755)

    def versions() -> tuple[str, str]:
        _toolchain.zig_versions.cache_clear()  # as in another process
        return _toolchain.zig_versions(zig)

    write("1")
    assert [versions() for _ in range(3)] == [("1 version", "1 clang")] * 3
    assert asked.read_text() == "version\nclang --version\n"
    write("two")
    assert versions() == ("two version", "two clang")


def test_a_zig_that_does_not_run_is_asked_each_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path / "cache"))
    zig = tmp_path / "zig"
    zig.write_text("#!/bin/sh\nexit 1\n")
    zig.chmod(0o755)
    assert _toolchain.zig_versions(zig) == ("", "")
    zig.write_text("#!/bin/sh\necho 3\n")
    _toolchain.zig_versions.cache_clear()
    assert _toolchain.zig_versions(zig) == ("3", "3")


def test_zig_keeps_its_own_cache_where_ours_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path))
    assert _toolchain._environment()["ZIG_GLOBAL_CACHE_DIR"] == str(tmp_path / "zig")
    assert os.environ.get("ZIG_GLOBAL_CACHE_DIR") is None


def test_a_damaged_cache_of_zig_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    if _toolchain.find_zig() is None:
        pytest.skip("the package ziglang is not installed")
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path))
    source, options = tmp_path / "a.c", ["-nostdlib"]
    source.write_text("int answer(void) { return 42; }\n")
    host_shared_library([source], tmp_path / "first.so", options=options)
    objects = list(tmp_path.glob("zig/o/*/*.o"))
    assert objects
    for path in objects:
        path.write_bytes(path.read_bytes()[:100])
    host_shared_library([source], tmp_path / "again.so", options=options)
    assert ctypes.CDLL(str(tmp_path / "again.so")).answer() == 42
    assert not (tmp_path / "zig").exists()


def test_gcc_does_not_compile_the_host_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(name: str, version: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{version}'\n")
        path.chmod(0o755)

    monkeypatch.setattr(host_compiler, "find_zig", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    find = host_compiler._host_compiler.__wrapped__
    install("cc", "cc (Debian 12.2.0) 12.2.0")
    with pytest.raises(ToolchainError, match="pip install ziglang"):
        find()
    install("clang", "Debian clang version 22.1.8")
    assert find() == ((str(tmp_path / "clang"),), "Debian clang version 22.1.8")
