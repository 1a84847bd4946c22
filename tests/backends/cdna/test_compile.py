"""Compiling: the cache's key, damaged entries, hiprtc in place of clang, and what is read back."""

import dataclasses
import shutil

import pytest

from cupygemm._backends.cdna import compile as _compile
from cupygemm._backends.cdna.arch import ARCHS
from cupygemm._backends.cdna.compile import compile_kernel, compile_source
from cupygemm._backends.cdna.mainloops import mainloop_of
from cupygemm._backends.cdna.resources import Resources, read_resources
from cupygemm._backends.cdna.select import select
from cupygemm._build import cache as _cache
from cupygemm._build.toolchain import CompileError, Toolchain, ToolchainError
from tests.problems import problem_of

PROBLEM = problem_of(100, 200, 300, out_dtype="f32")
SOURCE = """
extern "C" __attribute__((global)) void cupygemm_gemm(float* out, float value) {
    __attribute__((shared)) float line[64];
    line[__builtin_amdgcn_workitem_id_x()] = value;
    out[__builtin_amdgcn_workitem_id_x()] = line[63 - __builtin_amdgcn_workitem_id_x()];
}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache of this test's own."""
    monkeypatch.setenv("CUPYGEMM_CACHE_DIR", str(tmp_path / "cache"))
    compile_source.cache_clear()
    yield tmp_path / "cache"
    compile_source.cache_clear()


@pytest.fixture
def compilations(monkeypatch):
    """Count the compilations."""
    compiled = []
    compile_hip = Toolchain.compile_hip

    def counted(self, source, output, **options):
        compiled.append(options)
        return compile_hip(self, source, output, **options)

    monkeypatch.setattr(Toolchain, "compile_hip", counted)
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("target", list(ARCHS))
def test_kernel_of_a_problem(target):
    config = select(PROBLEM, ARCHS[target]).config
    kernel = compile_kernel(PROBLEM, config, target)
    assert kernel.path.read_bytes()[:4] == b"\x7fELF"
    assert (kernel.name, kernel.target) == ("cupygemm_gemm", target)
    resources = kernel.resources
    assert resources.lds_bytes == mainloop_of(config).lds_bytes(config, 2)
    assert resources.scratch_bytes == resources.vgpr_spills == resources.sgpr_spills == 0
    assert resources.vgprs + resources.agprs <= 512 // config.waves_per_simd
    assert resources.kernarg_bytes == 144
    assert resources.max_threads == config.num_threads
    assert 1000 < resources.code_bytes < kernel.path.stat().st_size
    with pytest.raises(dataclasses.FrozenInstanceError):
        resources.vgprs = 0


def test_one_text_is_compiled_once(compilations):
    first = compile_source(SOURCE, "gfx942")
    compile_source.cache_clear()  # as another process would find it
    assert compile_source(SOURCE, "gfx942") == first
    assert len(compilations) == 1


def test_the_key_holds_text_target_and_compiler(compilations, monkeypatch):
    paths = {compile_source(SOURCE, "gfx942").path, compile_source(SOURCE, "gfx950").path}
    paths.add(compile_source(SOURCE + "\n", "gfx942").path)
    compile_source.cache_clear()
    found = _compile.find_toolchain()
    newer = dataclasses.replace(found, version=found.version + " patched")
    monkeypatch.setattr(_compile, "find_toolchain", lambda: newer)
    paths.add(compile_source(SOURCE, "gfx942").path)
    assert len(paths) == len(compilations) == 4


@pytest.mark.parametrize("damage", ["truncated", "garbage", "no seal", "gone"])
def test_a_damaged_entry_is_rebuilt(compilations, damage):
    kernel = compile_source(SOURCE, "gfx942")
    whole = kernel.path.read_bytes()
    if damage == "truncated":
        kernel.path.write_bytes(whole[:-100])
    elif damage == "garbage":
        kernel.path.write_bytes(b"x" * len(whole))
    elif damage == "no seal":
        shutil.copy(kernel.path, str(kernel.path) + ".copy")
        next(kernel.path.parent.glob("*.seal")).unlink()
    else:
        kernel.path.unlink()
    compile_source.cache_clear()
    _cache._verified.clear()  # as another process would find it
    assert compile_source(SOURCE, "gfx942").path.read_bytes() == whole
    assert len(compilations) == 2


def test_a_refused_source_leaves_nothing(cache):
    with pytest.raises(CompileError, match="undeclared identifier 'nonsense'"):
        compile_source(SOURCE.replace("value;", "nonsense;"), "gfx942")
    assert not list(cache.rglob("*.hsaco"))


def test_warnings_of_a_newer_compiler_do_not_matter():
    compile_source(SOURCE.replace("line[__", "int idle = 0; line[__", 1), "gfx942")


def test_a_code_object_without_the_entry_is_refused():
    with pytest.raises(ValueError, match=r"no kernel 'cupygemm_gemm'; its kernels: other"):
        compile_source(SOURCE.replace("cupygemm_gemm", "other"), "gfx942")


def test_no_compiler_at_all(monkeypatch):
    def missing():
        raise ToolchainError("no compiler for CDNA code objects: none found")

    monkeypatch.setattr(_compile, "find_toolchain", missing)
    monkeypatch.setattr(_compile, "_hiprtc", lambda: None)
    with pytest.raises(ToolchainError, match="none found"):
        compile_source(SOURCE, "gfx942")


@pytest.mark.slow
def test_hiprtc_where_there_is_no_clang(cp, device, monkeypatch):
    if device.kind == "cuda":
        assert _compile._hiprtc() is None
        return
    by_clang = compile_source(SOURCE, device.target)
    compile_source.cache_clear()

    def missing():
        raise ToolchainError("none found")

    monkeypatch.setattr(_compile, "find_toolchain", missing)
    by_hiprtc = compile_source(SOURCE, device.target)
    assert by_hiprtc.compiler.startswith("hiprtc ")
    assert by_hiprtc.path != by_clang.path
    assert by_hiprtc.resources.lds_bytes == by_clang.resources.lds_bytes == 256
    kernel = cp.RawModule(path=str(by_hiprtc.path)).get_function(by_hiprtc.name)
    out = cp.empty(64, "float32")
    kernel((1,), (64,), (out, cp.float32(7)))
    assert (cp.asnumpy(out) == 7).all()
    with pytest.raises(CompileError, match="undeclared identifier 'nonsense'"):
        compile_source(SOURCE.replace("value;", "nonsense;"), device.target)


def test_resources_of_what_is_no_code_object(tmp_path):
    path = tmp_path / "text.hsaco"
    for content in (b"", b"text", b"\x7fELF", b"\x7fELF" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a code object"):
            read_resources(path, "cupygemm_gemm")


def test_resources_read_well():
    assert "vgprs=3" in repr(
        Resources(
            vgprs=3,
            agprs=0,
            sgprs=10,
            vgpr_spills=0,
            sgpr_spills=0,
            lds_bytes=0,
            scratch_bytes=0,
            kernarg_bytes=16,
            code_bytes=52,
            max_threads=1024,
        )
    )
