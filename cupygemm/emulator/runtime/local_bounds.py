"""Follow indices beyond local arrays, which the optimiser keeps in registers.

    x = a[i]   becomes   x = i < 8 ? a[i] : marker          for float a[8]
    a[i] = x   becomes   a[i < 8 ? i : 0] = i < 8 ? x : marker

No memory lies behind such an array, so nothing else shows that an index is wrong. The marker is one
of unwritten.py, and the device follows it to where it would change a result. So what is read beyond
the end and not used is no finding. A store beyond the end makes the first element undefined. Where
the compiler sees that an index is right, it removes the marker and the comparison.

An index may pass the end of a row inside an array of several dimensions. Elements whose address is
passed on, to functions or by copies of structures, are not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cupygemm.emulator.runtime.ir_types import members, typed

MARKER = "v_mov_b32_dpp $0, $0 quad_perm:[3,2,1,0] row_mask:0x0 bank_mask:0x0"
CONTROL = 0x1B  # the pattern of its quad_perm
# A declaration of a local array, roughly.
_DECLARES = re.compile(r"[\w>]\s+\w+\s*(?:\[[^]]*\]\s*)+[=;,{]")
_NOT_LOCAL = re.compile(
    r"//.*|\b(?:return|__shared__|__constant__|__device__|extern|typedef)\b[^;{(]*(?:\{[^}]*\}\s*)?;"
)

_NAME = r"%[\w.$-]+|%\"[^\"]+\""
_ALLOCA = re.compile(
    rf"^  ({_NAME}) = alloca ([\[<%].*?), align \d+, addrspace\(5\)$", re.MULTILINE
)
_CAST = re.compile(rf"^  ({_NAME}) = addrspacecast ptr addrspace\(5\) ({_NAME}) to ptr$")
_ELEMENT = re.compile(
    rf"^  ({_NAME}) = getelementptr inbounds (?:nuw )?(.+), ptr ({_NAME}), "
    rf"i(?:32|64) 0, (i32|i64) (\d+|{_NAME})(, !dbg !\d+)$"
)
_LOAD = re.compile(rf"^  ({_NAME}) = (load ([^,]+), ptr ({_NAME}), align \d+)(, !dbg !\d+).*$")
_STORE = re.compile(rf"^  store (.+?) ([^ ,]+|<.*>), ptr ({_NAME})(, align \d+)(, !dbg !\d+).*$")
_NAMES = re.compile(_NAME)


class _Place(NamedTuple):
    """What a pointer into a local variable points to.

    Attributes
    ----------
    kind : str
        The type.
    room : str
        How many objects of the type lie from there on: a number, or an i64 of the IR.
    inside : str
        Whether all indices so far are right: "" for yes, or an i1 of the IR.
    compared : str
        The last index that was compared.
    """

    kind: str
    room: str = "1"
    inside: str = ""
    compared: str = ""


def may_index(source: str) -> bool:
    """Tell whether a program may declare a local array."""
    return _DECLARES.search(_NOT_LOCAL.sub(";", source)) is not None


def with_bounds(ir: str, structures: dict[str, str]) -> str | None:
    """Return LLVM IR that follows indices beyond local arrays; None if it has none to follow.

    Parameters
    ----------
    ir : str
        Of a module, as clang emits it for an optimisation, before the first pass.
    structures : dict of str to str
        The types of structures by name.
    """
    if "@llvm.lifetime.start." not in ir:  # not optimised: private memory is followed instead
        return None
    texts = re.split(r"^(?=define )", ir, flags=re.MULTILINE)
    functions = [_Function(text, structures, number) for number, text in enumerate(texts)]
    changed = ["\n".join(each.lines()) for each in functions]
    return "".join(changed) if any(each.count for each in functions) else None


class _Function:
    """The lines of one function, with its local variables."""

    def __init__(self, text: str, structures: dict[str, str], number: int) -> None:
        self.text, self.structures = text.split("\n"), structures
        self.prefix = f"%cupygemm.bounds.{number}"
        self.count = 0
        self.places: dict[str, _Place] = {}
        variables = dict(_ALLOCA.findall(text))
        for line in self.text:
            if (cast := _CAST.match(line)) and cast[2] in variables:
                self.places[cast[1]] = _Place(variables[cast[2]])
        self.escaping = self._escaping()

    def _escaping(self) -> set[str]:
        """Return the pointers to elements that are used for more than loads and stores."""
        bases: dict[str, str] = {}
        escaping: set[str] = set()
        for line in self.text:
            element = _ELEMENT.match(line)
            load, store = _LOAD.match(line), _STORE.match(line)
            pointer = element[3] if element else load[4] if load else store[3] if store else ""
            if element:
                bases[element[1]] = pointer
            names = _NAMES.findall(line)
            escaping.update(each for each in names if each in bases and each != pointer)
            if element:
                escaping.discard(element[1])
        for name in reversed(bases):
            if name in escaping:
                escaping.add(bases[name])
        return escaping

    def lines(self) -> Iterator[str]:
        """Yield the lines, with the comparisons."""
        for line in self.text:
            if element := _ELEMENT.match(line):
                yield from self._element(line, *element.groups())
            elif (load := _LOAD.match(line)) and self._is_compared(load[4]):
                name, what, kind, pointer, place = load.groups()
                raw = f"{self.prefix}.{self.count}.raw"
                chosen = list(self._chosen(name, kind, raw, pointer, place))
                yield f"  {raw} = {what}{place}" if chosen else line
                yield from chosen
            elif (store := _STORE.match(line)) and self._is_compared(store[3]):
                kind, value, pointer, alignment, place = store.groups()
                name = f"{self.prefix}.{self.count}.stored"
                chosen = list(self._chosen(name, kind, value, pointer, place))
                yield from chosen
                yield f"  store {kind} {name}, ptr {pointer}{alignment}{place}" if chosen else line
            else:
                yield line

    def _is_compared(self, pointer: str) -> bool:
        return pointer in self.places and self.places[pointer].inside != ""

    def _chosen(self, name: str, kind: str, value: str, pointer: str, place: str) -> Iterator[str]:
        """Yield the instructions that make the value, or a marker where the index is wrong."""
        start = f"{self.prefix}.{self.count}"
        marker = f"{start}.marker"
        made = list(typed(kind, marker, f"{start}.undefined"))
        if not made:
            return
        self.count += 1
        at = self.places[pointer]
        # The index keeps the marker, and the line that it stands for, where the index is computed.
        yield f"  {start}.index = trunc i64 {at.compared} to i32{place}"
        yield (
            f'  {marker} = call i32 asm "{MARKER} ; {self.count}", "=v,v"(i32 {start}.index) '
            f"nounwind memory(none){place}"
        )
        yield from (f"{line}{place}" for line in made)
        yield f"  {name} = select i1 {at.inside}, {kind} {value}, {kind} {start}.undefined{place}"

    def _element(
        self, line: str, name: str, kind: str, base: str, width: str, index: str, place: str
    ) -> Iterator[str]:
        """Yield the instructions that compute an element's address, from an index that is right."""
        at = self.places.get(base)
        if at is None or at.kind != kind or name in self.escaping:
            yield line
            return
        body = self.structures.get(kind, kind)
        if not body.startswith("["):
            yield line
            if index.isdigit() and body.startswith(("{", "<{")):
                kinds = list(members(body[body.index("{") + 1 : body.rindex("}")]))
                self.places[name] = at._replace(kind=kinds[int(index)], room="1")
            return
        length, _, inner = body[1:-1].partition(" x ")
        start = f"{self.prefix}.{self.count}"
        self.count += 1
        if at.room == "1":
            limit = length
        else:
            limit = f"{start}.limit"
            yield f"  {limit} = mul i64 {at.room}, {length}{place}"
        if width == "i32" and not index.isdigit():
            yield f"  {start}.wide = sext i32 {index} to i64{place}"
            index = f"{start}.wide"
        inside, chosen = f"{start}.inside", f"{start}.chosen"
        yield f"  {inside} = icmp ult i64 {index}, {limit}{place}"
        yield f"  {chosen} = select i1 {inside}, i64 {index}, i64 0{place}"
        yield f"  {name} = getelementptr inbounds {kind}, ptr {base}, i64 0, i64 {chosen}{place}"
        room = "1"
        if inner.startswith("["):
            room = f"{start}.room"
            yield f"  {room} = sub i64 {limit}, {chosen}{place}"
        if at.inside:
            yield f"  {start}.all = and i1 {at.inside}, {inside}{place}"
            inside = f"{start}.all"
        self.places[name] = _Place(inner, room, inside, index)
