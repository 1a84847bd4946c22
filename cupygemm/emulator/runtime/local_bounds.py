"""Track out-of-bounds indices of local arrays, which may be in registers, and of variables.

    x = a[i]   becomes   x = i < 8 ? a[i] : marker          for float a[8]
    a[i] = x   becomes   a[i < 8 ? i : 0] = i < 8 ? x : marker

An array in registers has no address, so nothing else shows that an index is wrong. The marker is
that of unwritten.py, and the device tracks it to where it would change a result. So a value that is
read past the end but not used is not a finding. A store past the end makes the first element
undefined. Where the compiler can prove an index right, it removes the marker and the comparison.

A ``__constant__`` or ``__device__`` array is adjacent to the other variables of its module, so an
access past its end is inside the allocation. Its indices are tracked in the same way.

In a multidimensional array, an index may pass the end of a row. Elements whose address escapes, to
functions or by copies of structures, are not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from cupygemm.emulator.runtime.ir_types import members, typed

_MARKER = "v_mov_b32_dpp $0, $0 {} row_mask:0x0 bank_mask:0x0"
LOCAL, VARIABLE = "quad_perm:[3,2,1,0]", "quad_perm:[2,3,0,1]"
"""The pattern of the marker of a local array, and of that of a variable of the module."""
STORED = {LOCAL: "quad_perm:[1,0,3,2]", VARIABLE: "quad_perm:[1,0,2,3]"}
"""The same of what a store puts into the first element."""
CONTROLS = (0x1B, 0x4E, 0xB1, 0xE1)  # all of them in machine code
# Roughly, a declaration of an array.
_DECLARES = re.compile(r"[\w>]\s+\w+\s*(?:\[[^]]*\]\s*)+[=;,{]")
_NO_DECLARATION = re.compile(
    r"//.*|\b(?:return|__shared__|extern|typedef)\b[^;{(]*(?:\{[^}]*\}\s*)?;"
)

_NAME = r"%[\w.$-]+|%\"[^\"]+\""
_ALLOCA = re.compile(
    rf"^  ({_NAME}) = alloca ([\[<%].*?), align \d+, addrspace\(5\)$", re.MULTILINE
)
_CAST = re.compile(rf"^  ({_NAME}) = addrspacecast ptr addrspace\(5\) ({_NAME}) to ptr$")
_VARIABLE = re.compile(
    r"^(@[\w.$-]+) = .*?\b(addrspace\([14]\)) (?:externally_initialized )?(?:constant|global) "
    r"(?=[\[%])(.*)$",
    re.MULTILINE,
)
_OF_MODULE = r"addrspacecast \(ptr addrspace\([14]\) @[\w.$-]+ to ptr\)"
_INSIDE = (
    r"getelementptr inbounds (?:nuw )?\((?P<kind>.+?), ptr (?P<base>{}), "
    r"i(?:32|64) 0(?P<steps>(?:, i(?:32|64) \d+)+)\)"
)
_DEPTH = 4  # of one part in another
_PART = re.compile(_INSIDE.format(r"\w+ .*\)"))
_ANY_PART = _OF_MODULE
for _ in range(_DEPTH):
    _ANY_PART = re.sub(r"\?P<\w+>", "?:", _INSIDE.replace("{}", f"{_OF_MODULE}|{_ANY_PART}"))
_ELEMENT = re.compile(
    rf"^  ({_NAME}) = getelementptr inbounds (?:nuw )?(.+?), "
    rf"ptr ({_NAME}|{_OF_MODULE}|{_ANY_PART}), "
    rf"i(?:32|64) 0, (i32|i64) (\d+|{_NAME})(, !dbg !\d+)$"
)
_LOAD = re.compile(rf"^  ({_NAME}) = (load ([^,]+), ptr ({_NAME}), align \d+)(, !dbg !\d+).*$")
_STORE = re.compile(rf"^  store (.+?) ([^ ,]+|<.*>), ptr ({_NAME})(, align \d+)(, !dbg !\d+).*$")
_NAMES = re.compile(_NAME)


class _Place(NamedTuple):
    """The target of a pointer into a local variable.

    Attributes
    ----------
    kind : str
        The type.
    room : str
        The number of objects of the type from there to the end: a literal, or an i64 of the IR.
    inside : str
        Whether all indices so far are in bounds: "" for yes, or an i1 of the IR.
    element : str
        The index of the last indexed element, flattened over all dimensions of its array: an i64 of
        the IR.
    row : str
        The same for a row of an array of several dimensions; "" for anything else.
    marker : str
        The pattern of the marker.
    """

    kind: str
    room: str = "1"
    inside: str = ""
    element: str = ""
    row: str = ""
    marker: str = LOCAL


def may_index(source: str) -> bool:
    """Tell whether a program may declare an array outside LDS."""
    return _DECLARES.search(_NO_DECLARATION.sub(";", source)) is not None


def with_bounds(ir: str, structures: dict[str, str]) -> str | None:
    """Return LLVM IR that tracks out-of-bounds indices; None if there is nothing to track.

    Parameters
    ----------
    ir : str
        A module as clang emits it for optimised code, before the first pass.
    structures : dict of str to str
        The types of structures by name.
    """
    variables = {
        f"addrspacecast (ptr {space} {name} to ptr)": _Place(_first_type(rest), marker=VARIABLE)
        for name, space, rest in _VARIABLE.findall(ir)
    }
    # Without optimisation, local variables are in private memory, which is tracked instead.
    optimised = "@llvm.lifetime.start." in ir
    if not optimised and not variables:
        return None
    texts = re.split(r"^(?=define )", ir, flags=re.MULTILINE)
    functions = [
        _Function(text, structures, variables, number, with_locals=optimised)
        for number, text in enumerate(texts)
    ]
    changed = ["\n".join(each.lines()) for each in functions]
    return "".join(changed) if any(each.count for each in functions) else None


def _first_type(text: str) -> str:
    """Return the type at the start of a line's rest: an array type, or a structure's name."""
    depth = 0
    for end, letter in enumerate(text):
        depth += (letter in "[<{(") - (letter in "]>})")
        if not depth and (text[0] == "[" or letter == " "):
            return text[: end + 1].strip()
    return text


class _Function:
    """The lines of a function, with its local variables and the module's."""

    def __init__(
        self,
        text: str,
        structures: dict[str, str],
        variables: dict[str, _Place],
        number: int,
        *,
        with_locals: bool,
    ) -> None:
        self.text, self.structures = text.split("\n"), structures
        self.prefix = f"%cupygemm.bounds.{number}"
        self.count = 0
        self.places = dict(variables)
        local = dict(_ALLOCA.findall(text)) if with_locals else {}
        for line in self.text:
            if (cast := _CAST.match(line)) and cast[2] in local:
                self.places[cast[1]] = _Place(local[cast[2]])
        self.escaping = self._escaping()

    def _escaping(self) -> set[str]:
        """Return the pointers to elements that have uses other than loads and stores."""
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
        """Yield the lines, with the comparisons added."""
        for line in self.text:
            if element := _ELEMENT.match(line):
                yield from self._element(line, *element.groups())
            elif (load := _LOAD.match(line)) and self._is_compared(load[4]):
                name, what, kind, pointer, place = load.groups()
                raw = f"{self.prefix}.{self.count}.raw"
                marker = self.places[pointer].marker
                chosen = list(self._chosen(name, kind, raw, pointer, place, marker))
                yield f"  {raw} = {what}{place}" if chosen else line
                yield from chosen
            elif (store := _STORE.match(line)) and self._is_compared(store[3]):
                kind, value, pointer, alignment, place = store.groups()
                name = f"{self.prefix}.{self.count}.stored"
                marker = STORED[self.places[pointer].marker]
                chosen = list(self._chosen(name, kind, value, pointer, place, marker))
                yield from chosen
                yield f"  store {kind} {name}, ptr {pointer}{alignment}{place}" if chosen else line
            else:
                yield line

    def _is_compared(self, pointer: str) -> bool:
        return pointer in self.places and self.places[pointer].inside != ""

    def _chosen(
        self, name: str, kind: str, value: str, pointer: str, place: str, pattern: str
    ) -> Iterator[str]:
        """Yield the instructions that select the value, or a marker if the index is wrong."""
        start = f"{self.prefix}.{self.count}"
        marker = f"{start}.marker"
        made = list(typed(kind, marker, f"{start}.undefined"))
        if not made:
            return
        self.count += 1
        at = self.places[pointer]
        # The marker, and the line that it stands for, is where the index is computed. The marker's
        # register holds the index, for reports.
        yield f"  {start}.index = trunc i64 {at.element} to i32{place}"
        yield (
            f'  {marker} = call i32 asm "{_MARKER.format(pattern)} ; {self.count}", '
            f'"=v,0"(i32 {start}.index) '
            f"nounwind memory(none){place}"
        )
        yield from (f"{line}{place}" for line in made)
        yield f"  {name} = select i1 {at.inside}, {kind} {value}, {kind} {start}.undefined{place}"

    def _element(
        self, line: str, name: str, kind: str, base: str, width: str, index: str, place: str
    ) -> Iterator[str]:
        """Yield the instructions that compute an element's address from an index in bounds."""
        at = self.places.get(base) or self._part(base)
        if at is not None and not base.startswith("%"):
            at = self._at_start(at, kind)
        if at is None or at.kind != kind or name in self.escaping:
            yield line
            return
        body = self.structures.get(kind, kind)
        if not body.startswith("["):
            yield line
            if index.isdigit() and body.startswith(("{", "<{")):
                kinds = list(members(body[body.index("{") + 1 : body.rindex("}")]))
                self.places[name] = at._replace(kind=kinds[int(index)], room="1", row="")
            return
        length, _, inner = body[1:-1].partition(" x ")
        if length == "0":  # a flexible array, as long as the rest of its memory
            yield line
            return
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
        room, element = "1", index
        if at.row:
            element = f"{start}.element"
            yield f"  {start}.before = mul i64 {at.row}, {length}{place}"
            yield f"  {element} = add i64 {start}.before, {index}{place}"
        if inner.startswith("["):
            room = f"{start}.room"
            yield f"  {room} = sub i64 {limit}, {chosen}{place}"
        if at.inside:
            yield f"  {start}.all = and i1 {at.inside}, {inside}{place}"
            inside = f"{start}.all"
        self.places[name] = _Place(inner, room, inside, element, element, at.marker)

    def _part(self, base: str) -> _Place | None:
        """Return the place at constant indices of a variable of the module."""
        part = _PART.fullmatch(base)
        if part is None:
            return None
        at = self.places.get(part["base"]) or self._part(part["base"])
        if at is None or part["kind"] != at.kind:
            return None
        for step in re.findall(r"i\d+ (\d+)", part["steps"]):
            body = self.structures.get(at.kind, at.kind)
            if body.startswith("["):
                length, _, inner = body[1:-1].partition(" x ")
                row = int(at.row or 0) * int(length) + int(step)
                room = int(at.room) * int(length) - int(step)
                at = at._replace(kind=inner, room=str(room), row=str(row))
            elif body.startswith("{"):
                kind = list(members(body[1:-1]))[int(step)]
                at = at._replace(kind=kind, room="1", row="")
            else:
                return None
        return at

    def _at_start(self, at: _Place, kind: str) -> _Place:
        """Return the place at the start of a structure or an array, if it has the type."""
        while at.kind != kind:
            body = self.structures.get(at.kind, at.kind)
            if body.startswith("{"):
                at = at._replace(kind=next(iter(members(body[1:-1]))), room="1", row="")
            elif body.startswith("["):
                length, _, inner = body[1:-1].partition(" x ")
                at = at._replace(kind=inner, room=str(int(at.room) * int(length)), row="0")
            else:
                break
        return at
