"""Loops of HIP source that wait for a flag by plain loads.

The compiler may take for granted that no other thread writes what a plain load reads. It reads the
flag once, before the loop, or removes the loop, so that the code may show no trace of it. The
loops are therefore looked for in the source that a code object keeps, when one of its kernels is
launched. Only loops that do nothing else count, on variables that the source declares as pointers
to numbers, arrays of them, or numbers in LDS or of the module, and nowhere as volatile. Conditions
that call a function are left out. A loop may keep what it reads in variables, and go back to its
beginning by ``continue``, if that repeats the same loads:

    for (int tile = last; tile >= 0;) {
        unsigned long long s = state[tile];
        if (s >> 32 == 0) continue;     nothing has changed, so it waits for state[tile]
        ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cupygemm.emulator.code_object.kept_source import without_comments
from cupygemm.emulator.raw_kernels.source_check import SourceCheck

CHECK = "polling"
_CONDITION = r"((?:[^(){};]|\([^(){};]*\))*)"  # with at most one level of parentheses
_IDLE = r"(?:__builtin_amdgcn_s_sleep|__nanosleep)\s*\([^()]*\)\s*;"
_BODY = rf"(?:;|{_IDLE}|\{{\s*(?:;|continue\s*;|{_IDLE})?\s*\}})"
_LOOPS = (
    re.compile(rf"\bwhile\s*\({_CONDITION}\)\s*{_BODY}"),
    re.compile(rf"\bfor\s*\(\s*;{_CONDITION};\s*\)\s*{_BODY}"),
    re.compile(rf"\bdo\s*{_BODY}\s*while\s*\({_CONDITION}\)\s*;"),
)
_TAKE = r"(?:[A-Za-z_]\w*\s+)*[A-Za-z_]\w*\s*=(?!=)[^;{}]*;\s*"
_TAKES = rf"((?:{_TAKE}){{1,4}})(?:{_IDLE}\s*)?"
_HEAD = rf"\b(?:while\s*\({_CONDITION}\)|for\s*\([^;(){{}}]*;{_CONDITION};\s*\))\s*"
# Groups: conditions, and what is assigned.
_TAKING_LOOPS = (
    re.compile(rf"{_HEAD}\{{\s*{_TAKES}\}}"),
    re.compile(rf"\bdo\s*\{{\s*{_TAKES}\}}\s*while\s*\({_CONDITION}\)\s*;"),
    re.compile(
        rf"{_HEAD}\{{\s*{_TAKES}if\s*\({_CONDITION}\)\s*"
        rf"(?:\{{\s*(?:{_IDLE}\s*)?continue\s*;\s*\}}|continue\s*;)"
    ),
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\s*=(?!=)\s*([^;]*);")
_ENDS_A_DO = re.compile(r"\}\s*$|\bdo\b[^{};]*;\s*$")
_CHANGES = re.compile(r"\+\+|--|(?<![=!<>])=(?!=)|\w\s*\(|\bvolatile\b|\?")
_READ = re.compile(r"\b([A-Za-z_]\w*)\s*\[|(?:^|[(!~&|=<>+-])\s*\*\s*([A-Za-z_]\w*)")
_NUMBERS = r"unsigned|signed|int|long|short|char|bool|float|double|size_t|u?int\d+_t|uint"
_NUMBER = rf"(?:(?:{_NUMBERS})\b\s*)"
_QUALIFIER = r"(?:(?:const|static|__shared__|__device__|__global__|extern|__managed__)\b\s*)"
_OF_ALL = re.compile(rf"\b__(?:shared|device)__\s+{_NUMBER}+(\w+)\s*[;,=]")
_OTHERS = r"(?:,\s*\*?\s*\w+\s*)*?(?:,\s*\*?\s*)?"  # variables of the same declaration
_PLAIN = (
    "the compiler reads {} once, before the loop, or removes the loop: read it by "
    "__hip_atomic_load, or declare it volatile"
)


def loops(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each loop that waits by plain loads, and what is wrong with it."""
    plain = without_comments(source)
    shared = set(_OF_ALL.findall(plain))
    found = [(each, _read_idly(plain, each)) for form in _LOOPS for each in form.finditer(plain)]
    found += [
        (each, _read_and_kept(each)) for form in _TAKING_LOOPS for each in form.finditer(plain)
    ]
    for loop, text in sorted(found, key=_start):
        names = [first or second for first, second in _READ.findall(text)]
        names += [name for name in re.findall(r"\w+", text) if name in shared]
        if names and all(_is_plain(plain, name) for name in names):
            yield plain.count("\n", 0, loop.start()) + 1, _PLAIN.format(names[0])


def _read_idly(source: str, loop: re.Match[str]) -> str:
    """Return what decides a loop without work; "" if it is no such loop."""
    before = source[max(loop.start() - 200, 0) : loop.start()]
    may_end_a_do = re.fullmatch(r"while.*\)\s*;", loop[0], re.DOTALL) is not None
    if _CHANGES.search(loop[1]) or (may_end_a_do and _ENDS_A_DO.search(before)):
        return ""
    return loop[1]


def _read_and_kept(loop: re.Match[str]) -> str:
    """Return the loads that decide a loop which keeps them; "" if its iterations may differ."""
    groups = [each for each in loop.groups() if each is not None]
    takes = next(each for each in groups if _ASSIGNED.search(each))
    conditions = [each for each in groups if each is not takes]
    assigned = _ASSIGNED.findall(takes)
    values = [value for _, value in assigned]
    if "volatile" in takes or any(_CHANGES.search(each) for each in (*conditions, *values)):
        return ""
    names = [name for name, _ in assigned]
    words = [set(re.findall(r"\w+", value)) for value in values]
    if any(used & set(names[i:]) for i, used in enumerate(words)):
        return ""  # an iteration depends on the one before
    decides = set(re.findall(r"\w+", conditions[-1]))
    for name, used in reversed(list(zip(names, words, strict=True))):
        decides |= used if name in decides else set()
    return " , ".join(value for name, value in assigned if name in decides)


def _start(found: tuple[re.Match[str], str]) -> int:
    return found[0].start()


def _is_plain(source: str, name: str) -> bool:
    """Tell whether all declarations of a variable say that it points to numbers, none volatile."""
    pointer = rf"\*\s*(?:const\b\s*|__restrict__\b\s*)*{name}\b"
    is_declared = re.search(
        rf"(?:^|[(,;{{}}])\s*{_QUALIFIER}*{_NUMBER}+(?:const\b\s*)?(?:{pointer}|{name}\s*[\[;,=])",
        source,
    )
    return is_declared is not None and not re.search(
        rf"\b(?:volatile|auto|atomic\w*)\b[^;(){{}}=,]*{_OTHERS}\b{name}\b", source
    )


report = SourceCheck(
    CHECK, "HIP source waits in a loop for memory that it reads by plain loads", loops
).report
