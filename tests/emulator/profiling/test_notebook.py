"""Profiles, faults and explanations as notebooks and the interpreter show them; call sites."""

from __future__ import annotations

from html.parser import HTMLParser
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cupygemm
from cupygemm import emulator
from cupygemm.emulator import run
from cupygemm.emulator.profiling import Profile
from cupygemm.emulator.profiling.compare import compare
from cupygemm.emulator.profiling.verdict import verdict
from tests.emulator.profiled import profiled

BODY = """
v_lshlrev_b32 v1, 2, v0
global_load_dword v2, v1, s[4:5]
s_waitcnt vmcnt(0)
v_add_f32 v2, v2, v2
global_store_dword v1, v2, s[4:5]
"""
VOID = {"br", "img"}


class Balanced(HTMLParser):
    """Collects tags, and fails for those that do not nest."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def tags(html: str) -> list[str]:
    parser = Balanced()
    parser.feed(html)
    assert not parser.open
    return parser.seen


@pytest.mark.slow
def test_a_profile_in_a_notebook() -> None:
    pytest.importorskip("matplotlib")
    kernel = profiled(BODY)
    html = kernel._repr_html_()
    found = tags(html)
    assert "svg" in found
    assert found.count("img") == 2, "the timeline and the roofline"
    assert "<b>Verdict</b> (modelled): Latency bounds it" in html
    assert "<li><b>Waits for global memory</b>" in html
    profile = Profile()
    assert "no launches" in profile._repr_html_()
    profile.add(kernel)
    assert tags(profile._repr_html_()) == found


def test_tables_in_a_notebook_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = str(profiled(BODY))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    kernel = profiled(BODY)
    assert str(kernel) == expected
    assert "vL1D requests" in kernel._repr_html_()
    assert str(compare(kernel, kernel)).startswith("a and b take the same modelled time")


def test_a_verdict_in_a_notebook() -> None:
    html = verdict(profiled(BODY))._repr_html_()
    assert tags(html)[:3] == ["p", "b", "p"], "the summary and the warning"
    assert "<li><b>Waits for global memory</b>" in html
    assert "raise the occupancy" not in html, "slots for waves are free"


def test_short_representations() -> None:
    kernel = profiled(BODY)
    text = repr(kernel)
    assert text.startswith("KernelProfile(k on gfx942: grid 1x1x1, block 64x1x1, 8 instructions")
    assert "bound by latency" in text
    assert len(text) < 140
    launch = repr(run.last_launch())
    assert launch.startswith("LaunchStats(k: grid 1x1x1, block 64x1x1, 1 waves, 8 instructions")
    assert len(launch) < 140


def test_a_comparison_in_a_notebook() -> None:
    kernel = profiled(BODY)
    html = compare(kernel, kernel)._repr_html_()
    assert tags(html) == ["h4", "pre"]
    assert "a and b take the same modelled time" in html


def test_an_explanation_in_a_notebook(cp: ModuleType) -> None:
    a = cp.zeros((64, 32), np.float16)
    html = cupygemm.explain(a, a.T)._repr_html_()
    assert {"table", "tr", "th", "td"} <= set(tags(html))
    assert "(64, 32)" in html


# Two functions are in one line, as from macros; the line is reported once.
INLINED = """
#define TWICE(get)                                                                                 \
    __device__ inline float same(const float* x, int i) { return 2 * get(x, i); }                  \
    __device__ inline float twice(const float* x, int i) { return same(x, i); }
__device__ inline float get(const float* x, int i) {
    return x[i];
}
TWICE(get)
extern "C" __global__ void k(const float* x, float* y) {
    y[threadIdx.x] =
        twice(x, threadIdx.x);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("option", ["-g", "-gline-tables-only"])
def test_the_call_site_of_an_inlined_helper(cp: ModuleType, device: Any, option: str) -> None:
    if not device.emulated:
        pytest.skip("only the emulated device reports faults")
    kernel = cp.RawKernel(INLINED, "k", options=(option,))
    with pytest.raises(RuntimeError, match="out-of-bounds"):
        kernel((1,), (64,), (cp.zeros(60, "f4"), cp.zeros(64, "f4")))
    fault = emulator.last_fault()
    assert isinstance(fault, emulator.KernelFault)
    assert fault.source is not None
    assert fault.source[1] == 4
    assert [line for _, line in fault.call_sites] == [6, 9]
    assert len({file for file, _ in fault.call_sites} | {fault.source[0]}) == 1
    assert f"inlined at {fault.call_sites[1][0]}:9" in str(fault)
    assert tags(fault._repr_html_()) == ["p", "b", "pre"]
    with emulator.profile() as profile:
        kernel((1,), (64,), (cp.zeros(64, "f4"), cp.zeros(64, "f4")))
    (load,) = [i for i in profile.kernels[0].instructions if i.text.startswith("global_load")]
    assert [line for _, line in load.call_sites] == [6, 9]
    assert ":4, inlined at " in profile.listing()


def test_a_line_of_the_kernel_has_no_call_site(cp: ModuleType, device: Any) -> None:
    if not device.emulated:
        pytest.skip("only the emulated device reports faults")
    source = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }'
    with pytest.raises(RuntimeError, match="out-of-bounds"):
        cp.RawKernel(source, "k", options=("-g",))((1,), (64,), (cp.zeros(60, "f4"),))
    fault = emulator.last_fault()
    assert isinstance(fault, emulator.KernelFault)
    assert fault.call_sites == ()
    assert "inlined" not in str(fault)
