"""Find idioms of CUDA source for warps of 32 threads that are wrong in waves of 64 lanes.

They compile and run. The source in a code object is searched for them when a kernel is launched
with more than 32 threads in a block; with fewer, they are correct. Code that consistently counts
lanes in groups of 32 is correct, too: a reduction that begins at 16 is reported only if the source
has no such groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cupygemm.emulator.code_object.kept_source import without_comments
from cupygemm.emulator.raw_kernels.source_check import SourceCheck

if TYPE_CHECKING:
    from cupygemm.emulator.code_object import CodeObject

CHECK = "warp_idioms"
_WARP = 32
_ANY_SIZE = re.compile(r"warpSize|AMDGCN|__HIP(?!_MEMORY_SCOPE)|USE_ROCM|WAVEFRONT", re.IGNORECASE)
_GROUPS = re.compile(r"\b(?:31|32|0x1[fF]|0x20)[uU]?\b|(?:>>|<<)\s*5\b|warp_?size", re.IGNORECASE)
_LANE_OF_32 = re.compile(r"\bthreadIdx\.x\s*(?:&\s*(?:31|0x1[fF])|%\s*32)\b")
_SHUFFLE = r"\b__shfl(?:_(?:down|up|xor))?(_sync)?\s*\("
_LOOP = re.compile(
    r"\bfor\s*\([^;]*?\b(\w+)\s*=\s*16\s*;[^;]*;\s*\1\s*(?:>>=\s*1|/=\s*2|=\s*\1\s*(?:>>\s*1|/\s*2))"
)
_SCAN = re.compile(
    r"\bfor\s*\([^;]*?\b(\w+)\s*=\s*1\s*;\s*\1\s*<(?:\s*32|=\s*16)\s*;"
    r"\s*\1\s*(?:<<=\s*1|\*=\s*2|\+=\s*\1|=\s*\1\s*(?:<<\s*1|\*\s*2))"
)
# A reduction of a whole wave, or a shift of 64 bits: 32, but no group of 32.
_NO_GROUP = re.compile(r"\bfor\s*\([^;]*=\s*32\s*;|(?:<<|>>)\s*32\b")
_LANE_OF_64 = r"\bthreadIdx\.x\s*(?:&\s*(?:63|0x3[fF])|%\s*64)\b"
_NAMED_LANE = re.compile(rf"\b(\w+)\s*=\s*(?:\((?:int|unsigned)\)\s*)?\(?\s*{_LANE_OF_64}")
_BROADCAST = re.compile(r"\b__shfl(_sync)?\s*\(")
_FIRST_LANES_ONLY = re.compile(r"<\s*(?:32|0x20)\b")
_LOWER_HALF = re.compile(
    r"\b(\w+)\s*=\s*\(\s*(?:unsigned(?:\s+int)?|int|uint|uint32_t|int32_t)\s*\)\s*__ballot\s*\("
)
_LANES_BELOW = re.compile(r"\(\s*1[uU]?\s*<<[^;&|]*?\)\s*-\s*1\b")
_BALLOT_OF = re.compile(r"\b(\w+)\s*=\s*__(?:ballot|activemask|builtin_amdgcn_ballot_w64)\s*\(")
_BIT = r"\(*\s*1[uU]?\s*<<(?!\s*\d)[^;&|]*?\)(?!\s*-\s*1)"
_SCALAR = re.compile(r"\b__builtin_amdgcn_readfirstlane\s*\(")
# The number of a lane's group of 2 to 32: threadIdx.x / 32, or (threadIdx.x % 64) >> 4.
_GROUP = (
    r"\(*\s*threadIdx\.x\s*(?:(?:%|&)\s*6[34]\s*)?\)*\s*"
    r"(?:/\s*(?P<lanes>2|4|8|16|32)[uU]?|>>\s*(?P<shift>[1-5])[uU]?)\s*\)*"
)
_NAMED_GROUP = re.compile(rf"\b(\w+)\s*=\s*(?:\((?:int|unsigned)\)\s*)?{_GROUP}\s*[;,]")
_STEP = r"(\w+)\[(\w+)\]\s*(?:\+=|=)[^;]*\b\1\[\2\s*\+\s*(\d+)\][^;]*;\s*"
_LOCKSTEP = re.compile(rf"{_STEP}\1\[\2\]\s*(?:\+=|=)[^;]*\b\1\[\2\s*\+\s*(\d+)\]")
_HALF_A_SUM = (
    "a reduction that begins at 16 combines 32 lanes: begin at warpSize / 2, or pass 32 as the "
    "width of __shfl"
)
_HALF_A_SCAN = (
    "a scan that ends before 32 combines 32 lanes: go on to warpSize, or pass 32 as the width of "
    "__shfl_up"
)
_MIDDLE = "lane 31 is in the middle of a wave, whose last lane is 63"
_OF_THE_WAVE = (
    "lanes 32 to 63 read lane {} of the wave, not of their group of 32: pass 32 as the width of "
    "__shfl"
)
_SHORT_MASK = (
    "a mask of the lanes below one, of 32 bits: write (1ull << lane) - 1, with lane up to 63"
)
_SHORT_BIT = (
    "a bit of 32, where {} has one for each of 64 lanes: write 1ull << lane, or {} >> lane & 1"
)
_LOST_HALF = (
    "{} has lanes 0 to 31 of the wave, in its upper half, too: shift the group's lanes down before "
    "the conversion, __ballot(...) >> (threadIdx.x & 32)"
)
_NOT_UNIFORM = (
    "the number of a group of {} lanes is not one in a wave: readfirstlane gives all lanes that of "
    "the first group (a wave's own number is threadIdx.x / 64)"
)
_TOO_EARLY = (
    "the compiler may read {} before another lane has added to it: declare it volatile, or put "
    "__syncthreads() between the steps"
)


def report(code_object: CodeObject, threads: int) -> None:
    """Report the idioms in a program, at its first launch with more than a warp in a block.

    Parameters
    ----------
    code_object : CodeObject
    threads : int
        Threads of a block.

    Raises
    ------
    SourceFault
        The check is an error.
    """
    if threads > _WARP:
        _SOURCE_CHECK.report(code_object)


def idioms(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each idiom in a program, and an explanation."""
    plain = without_comments(source)
    if not any(each in plain for each in ("__shfl", "__ballot", "__shared__", "readfirstlane")):
        return
    found = [*_lockstep(plain), *_not_uniform(plain)]
    if _ANY_SIZE.search(plain) is None:
        found += [
            *_half_sums(plain),
            *_middle_lanes(plain),
            *_first_lanes(plain),
            *_masks(plain),
            *_lost_halves(plain),
        ]
        found += _bits(plain)
    for start, what in sorted(found):
        yield plain.count("\n", 0, start) + 1, what


def _half_sums(source: str) -> Iterator[tuple[int, str]]:
    """Find shuffle reductions and scans of 32 lanes in source that has no groups of 32."""
    if _GROUPS.search(_NO_GROUP.sub("", _SCAN.sub("", source))):
        return
    for loops, what in ((_LOOP, _HALF_A_SUM), (_SCAN, _HALF_A_SCAN)):
        for loop in loops.finditer(source):
            body = source[loop.end() : loop.end() + 300].partition("}")[0]
            call = re.search(_SHUFFLE, body)
            if call and len(_arguments(body[call.end() :])) == (3 if call[1] else 2):
                yield loop.start(), what


def _middle_lanes(source: str) -> Iterator[tuple[int, str]]:
    """Find lane 31 where the last lane seems to be meant, in source that counts lanes up to 63."""
    names = {rf"\b{re.escape(lane[1])}\b" for lane in _NAMED_LANE.finditer(source)}
    lane = rf"(?:{'|'.join([_LANE_OF_64, *names])})\s*\)*\s*==\s*"
    middle = re.compile(rf"{lane}31\b")
    without = _NO_GROUP.sub("", middle.sub("", source))
    if _GROUPS.search(without) or re.search(rf"{lane}63\b", source):
        return
    for found in middle.finditer(source):
        yield found.start(), _MIDDLE


def _first_lanes(source: str) -> Iterator[tuple[int, str]]:
    """Find broadcasts from a lane of a group of 32 that read a lane of the wave instead."""
    if _LANE_OF_32.search(source) is None:
        return
    for call in _BROADCAST.finditer(source):
        arguments = _arguments(source[call.end() :])
        if len(arguments) == (3 if call[1] else 2) and arguments[-1].isdecimal():
            yield call.start(), _OF_THE_WAVE.format(arguments[-1])


def _masks(source: str) -> Iterator[tuple[int, str]]:
    """Find 32-bit masks of the lower lanes that are combined with a mask of 64 lanes."""
    for mask in _LANES_BELOW.finditer(source):
        start = max(source.rfind(end, 0, mask.start()) for end in ";{}")
        end = source.find(";", mask.end())
        if re.search(r"__(?:popcll|ffsll|clzll)\b|__ballot", source[start:end]):
            yield mask.start(), _SHORT_MASK


def _bits(source: str) -> Iterator[tuple[int, str]]:
    """Find 32-bit masks of one lane that are tested against a ballot of 64 lanes."""
    if _LANE_OF_32.search(source) or _FIRST_LANES_ONLY.search(source):
        return
    for name in {ballot[1] for ballot in _BALLOT_OF.finditer(source)}:
        mask = rf"\b{re.escape(name)}\b"
        for use in re.finditer(rf"{mask}\s*&\s*{_BIT}|{_BIT}\s*\)*\s*&\s*{mask}", source):
            yield use.start(), _SHORT_BIT.format(name, name)


def _lost_halves(source: str) -> Iterator[tuple[int, str]]:
    """Find ballots truncated to 32 bits in which lanes look for lower lanes of their group."""
    if _LANE_OF_32.search(source) is None or _FIRST_LANES_ONLY.search(source):
        return
    for ballot in _LOWER_HALF.finditer(source):
        name = re.escape(ballot[1])
        below = _LANES_BELOW.pattern
        if re.search(rf"\b{name}\s*&\s*\(*{below}|{below}\s*\)*\s*&\s*{name}\b", source):
            yield ballot.start(), _LOST_HALF.format(ballot[1])


def _not_uniform(source: str) -> Iterator[tuple[int, str]]:
    """Find numbers of groups of a few lanes that are used as numbers of waves."""
    if "__builtin_amdgcn_readlane" in source:  # they may read the other groups
        return
    named: dict[str, set[int]] = {}
    for group in _NAMED_GROUP.finditer(source):
        named.setdefault(group[1], set()).add(_lanes(group))
    for call in _SCALAR.finditer(source):
        (argument, *_) = _arguments(source[call.end() :]) or [""]
        if direct := re.fullmatch(_GROUP, argument):
            yield call.start(), _NOT_UNIFORM.format(_lanes(direct))
        elif len(sizes := named.get(argument, set())) == 1:
            assigned = re.findall(rf"\b{re.escape(argument)}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)", source)
            if len(assigned) == 1:
                yield call.start(), _NOT_UNIFORM.format(*sizes)


def _lanes(group: re.Match[str]) -> int:
    """Return how many lanes an expression counts as one."""
    return int(group["lanes"]) if group["lanes"] else 1 << int(group["shift"])


def _lockstep(source: str) -> Iterator[tuple[int, str]]:
    """Find steps of a reduction in LDS that neither a barrier nor volatile orders."""
    for steps in _LOCKSTEP.finditer(source):
        name, first, second = steps[1], int(steps[3]), int(steps[4])
        is_volatile = re.search(rf"\bvolatile\b[^;(){{}}]*\b{re.escape(name)}\b", source)
        if first == 2 * second and not is_volatile:
            yield steps.start(), _TOO_EARLY.format(f"{name}[{steps[2]} + {second}]")
            return


def _arguments(text: str) -> list[str]:
    """Return the arguments of a call from the text after its opening parenthesis."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0:
            return [part.strip() for part in parts]
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return []


_SOURCE_CHECK = SourceCheck(
    CHECK, "HIP source has idioms of warps of 32 threads, and a wave has 64 lanes", idioms
)
