"""``tools/foreign_kernels.py`` tells which files the emulated device can execute."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

TOOL = ROOT / "tools" / "foreign_kernels.py"

GOOD = 'extern "C" __global__ void good(float* x) { x[threadIdx.x] += 1; }\n'
# An instruction of the image units, which CDNA has no use for, as data in the code.
UNKNOWN = """
extern "C" __global__ void unknown(float* x) {
    asm volatile(".long 0xfffffffe");
    x[threadIdx.x] += 1;
}
"""


def run_here(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    """Run the tool in this process, which has imported what it needs, and return its status."""
    monkeypatch.setattr(sys, "argv", [str(TOOL), *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOL), run_name="__main__")
    return ended.value.code


@pytest.mark.slow
def test_files_of_all_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.hip").write_text('#include "part.h"\n' + GOOD)
    (tmp_path / "part.h").write_text("#define PART 1\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "bad.cpp").write_text('extern "C" __global__ void bad() { missing(); }\n')
    (tmp_path / "sub" / "unknown.cu").write_text(UNKNOWN)
    (tmp_path / "sub" / "damaged.co").write_bytes(b"\x7fELF" + bytes(60))
    (tmp_path / "notes.txt").write_text("no kernel")
    results = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, TOOL, tmp_path, "--json", results],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1, done.stderr
    found = {
        Path(path).name: tuple(result) for path, result in json.loads(results.read_text()).items()
    }
    assert set(found) == {"good.hip", "bad.cpp", "unknown.cu", "damaged.co"}
    assert found["good.hip"] == ("ready", "good")
    assert found["bad.cpp"][0] == "source"
    assert "missing" in found["bad.cpp"][1]
    assert found["unknown.cu"][0] == "instructions"
    assert found["unknown.cu"][1].startswith("unknown: ")
    assert found["damaged.co"][0] == "damaged"
    assert done.stdout.splitlines()[-1].startswith("1 ")
    assert run_here(monkeypatch, tmp_path / "good.hip", "--quiet") == 0
    assert capsys.readouterr().out == "1 ready\n"


WITH_HOST = """
#include <vector>
#include "helpers.hpp"
namespace part {
constexpr int width = 4; // { a brace in a comment
template <int n> __global__ void scaled(float* x) {
    x[threadIdx.x] *= n * sizeof("}") / sizeof("}");
}
__device__ float twice(float x) { return 2 * x; }
} // namespace part
static std::vector<float> numbers(int count) {
    if (count > 0) { return std::vector<float>(count, 1.0f); }
    return {};
}
struct pair { int a, b; };
__global__ void fixed(float* x, pair p) { x[p.a] = part::twice(x[p.b]); }
int main() {
    std::vector<float> x = numbers(64);
    part::scaled<4><<<1, 64>>>(x.data());
}
"""


@pytest.mark.slow
def test_the_hosts_part_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, results = tmp_path / "program.hip", tmp_path / "results.json"
    path.write_text(WITH_HOST.replace("part::", "").replace("namespace part", "inline namespace p"))
    options = ["--device-part", "--drop", "helpers.hpp", "--json", results]
    assert run_here(monkeypatch, path, *options) == 0
    ((kind, names),) = json.loads(results.read_text()).values()
    assert kind == "ready"
    assert "scaled" in names, "the instance that the host launches"
    assert "fixed" in names
