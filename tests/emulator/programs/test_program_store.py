"""Decoded programs outlive their modules, up to a total number of instructions."""

from __future__ import annotations

import gc
import types
import weakref
from collections import OrderedDict

from cupygemm.emulator import run
from cupygemm.emulator.execution import batch
from cupygemm.emulator.programs import program
from cupygemm.emulator.programs.program_store import Key, ProgramStore


def of_size(instructions: int) -> program.Program:
    return types.SimpleNamespace(entries=dict.fromkeys(range(instructions)))


def key(image: bytes) -> Key:
    return Key(image, "gfx942", profiled=False)


def test_what_was_used_longest_ago_goes_first():
    store = ProgramStore(max_instructions=10)
    first, second, third = of_size(4), of_size(4), of_size(4)
    store.give_back(key(b"1"), first, grown=True)
    store.give_back(key(b"2"), second, grown=True)
    assert store.take(key(b"1")) is first
    assert store.take(key(b"1")) is None  # a launch has it
    store.give_back(key(b"1"), first, grown=False)
    store.give_back(key(b"3"), third, grown=True)
    assert store.take(key(b"2")) is None
    assert store.take(key(b"1")) is first
    assert store.take(key(b"3")) is third


def test_a_program_larger_than_the_room_is_kept_until_the_next():
    store = ProgramStore(max_instructions=10)
    large = of_size(20)
    store.give_back(key(b"large"), large, grown=True)
    assert store.take(key(b"large")) is large
    store.give_back(key(b"large"), large, grown=True)
    store.give_back(key(b"small"), of_size(1), grown=True)
    assert store.take(key(b"large")) is None
    assert store.take(key(b"small")) is not None


def test_a_module_that_is_loaded_again_is_not_decoded_again(cp, monkeypatch):
    code = 'extern "C" __global__ void triple(int* x) { x[threadIdx.x] *= 3; }'
    x = cp.ones(8, "i4")
    cp.RawModule(code=code).get_function("triple")((1,), (8,), (x,))

    def refuse(*_: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(program.Program, "_decode", refuse)
    cp.RawModule(code=code, backend="nvrtc").get_function("triple")((1,), (8,), (x,))
    monkeypatch.undo()
    assert x.get().tolist() == [9] * 8


def test_a_program_that_is_dropped_is_gone_at_once(cp, monkeypatch):
    """No launch leaves it in a cycle, which only the garbage collector would find."""
    own = ProgramStore(max_instructions=1000)
    monkeypatch.setattr(run, "store", own)
    monkeypatch.setattr(batch, "_kept", OrderedDict())
    code = 'extern "C" __global__ void fourfold(int* x) { x[threadIdx.x] *= 4; }'
    x = cp.ones(8, "i4")
    collects = gc.isenabled()
    gc.disable()
    try:
        cp.RawModule(code=code).get_function("fourfold")((1,), (8,), (x,))
        *_, made = (weakref.ref(each) for each in own._idle.values())
        assert made() is not None
        own._idle.clear()
        batch._kept.clear()
        assert made() is None
    finally:
        if collects:
            gc.enable()
