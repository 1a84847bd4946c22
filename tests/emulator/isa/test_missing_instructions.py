"""The documentation lists exactly the instructions that the emulated device refuses."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

import pytest

from cupygemm.emulator.errors import UnsupportedInstruction
from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.targets import TARGETS
from cupygemm.emulator.units import bind
from tests.emulator.harness import assemble
from tests.emulator.listing import entries

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "emulated_device.rst"
IN_THE_LOOP = ("s_waitcnt", "s_barrier", "s_endpgm")  # executed by the run loop, without a step
BY_OPERAND = (
    "v_mfma_*",
    "v_smfmac_*",
    "buffer_atomic_*",
    "buffer_load_*byte",
    "buffer_load_dword*",
    "buffer_*_format_*",
)
# LLVM's mnemonics that the listing does not have.
OTHERS = {
    "gfx90a": (
        "image_load v[0:3], v[0:1], s[0:7] dmask:0xf unorm",
        "buffer_store_lds_dword s[0:3], 0 lds",
    ),
    "gfx942": (
        "ds_gws_init v0 gds",
        "s_atc_probe 1, s[2:3], s4",
        "s_cbranch_g_fork s[0:1], s[2:3]",
        "s_cbranch_i_fork s[0:1], 8",
        "s_cbranch_join s0",
        "s_rfe_b64 s[0:1]",
        "s_sendmsg 1",
        "s_sendmsghalt 1",
    ),
    "gfx950": ("v_mfma_ld_scale_b32 v0, v1",),
}


def documented() -> list[str]:
    """Return the patterns of the page's table."""
    section = PAGE.read_text().split(".. _missing-instructions:")[1].split("Buffer instructions")[0]
    return re.findall(r"``([a-z0-9_*]+)``", section)


def is_refused(code: bytes, target: str) -> bool:
    try:
        bind(decode(code, target=target), TARGETS[target])
    except UnsupportedInstruction:
        return True
    return False


def refused(target: str) -> set[str]:
    """Return the mnemonics of the listing that no encoding makes executable."""
    by_name: dict[str, bool] = {}
    for entry in entries(target):
        name = re.sub(r"_(e32|e64|sdwa|dpp)$", "", entry.text.split()[0])
        by_name[name] = by_name.get(name, True) and is_refused(entry.code, target)
    return {name for name, is_missing in by_name.items() if is_missing} - set(IN_THE_LOOP)


def matches(name: str, patterns: list[str] | tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_refused_is_documented(target: str) -> None:
    patterns = documented()
    assert len(patterns) > 15
    for name in refused(target):
        assert matches(name, patterns) or matches(name, BY_OPERAND), name


@pytest.mark.parametrize(("target", "text"), [(t, x) for t, texts in OTHERS.items() for x in texts])
def test_others_are_refused_and_documented(target: str, text: str) -> None:
    assert matches(text.split(maxsplit=1)[0], documented())
    with pytest.raises(UnsupportedInstruction):
        bind(assemble(text, target), TARGETS[target])


def test_what_is_documented_is_refused() -> None:
    names = {text.split()[0] for texts in OTHERS.values() for text in texts}
    names |= {name for target in TARGETS for name in refused(target)}
    for pattern in documented():
        assert any(fnmatch.fnmatchcase(name, pattern) for name in names), pattern
