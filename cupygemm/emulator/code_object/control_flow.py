"""The control-flow graph of a kernel's machine code, and its loops.

An edge whose target dominates its source closes a natural loop. The target is the loop's head; the
body is the set of instructions that reach the source without passing the head (Aho et al.,
"Compilers", 9.6). Calls are assumed to return to the next instruction. An indirect branch ends a
path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cupygemm.emulator.isa.decode import decode
from cupygemm.emulator.isa.instruction import Instruction

if TYPE_CHECKING:
    from cupygemm.emulator.code_object.loading import Kernel

_NO_SUCCESSOR = ("s_endpgm", "s_setpc", "s_rfe")


@dataclass(frozen=True)
class Node:
    """An instruction, and the instructions that execution may reach from it."""

    inst: Instruction
    successors: tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """A natural loop.

    Attributes
    ----------
    head : int
        Program counter of the instruction at which every iteration begins.
    latches : tuple of int
        Program counters of the branches back to it.
    body : frozenset of int
        Program counters of the loop's instructions, those of inner loops included.
    """

    head: int
    latches: tuple[int, ...]
    body: frozenset[int]


def graph(kernel: Kernel, entry: int | None = None) -> dict[int, Node]:
    """Return the instructions that are reachable from a kernel's entry, by program counter.

    With `entry`, return those reachable from there, such as in a function that the kernel calls.

    Raises
    ------
    cupygemm.emulator.errors.UnsupportedInstruction
        One of them cannot be decoded.
    """
    image, target = kernel.code_object.image, kernel.code_object.target_name
    nodes: dict[int, Node] = {}
    waiting = [kernel.entry if entry is None else entry]
    while waiting:
        pc = waiting.pop()
        if pc in nodes:
            continue
        inst = decode(image, pc, target)
        nodes[pc] = Node(inst, _successors(inst, pc))
        waiting += nodes[pc].successors
    return nodes


def _successors(inst: Instruction, pc: int) -> tuple[int, ...]:
    name, after = inst.mnemonic, pc + inst.size
    if name.startswith(_NO_SUCCESSOR):
        return ()
    if name.startswith(("s_branch", "s_cbranch")):
        goal = pc + inst.jump
        return (goal,) if name == "s_branch" else (after, goal)
    return (after,)


def dominators(nodes: Mapping[int, Node], entry: int) -> dict[int, int]:
    """Return the immediate dominator of each instruction; the entry's is itself.

    The algorithm is that of Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm".
    """
    order = _reverse_postorder(nodes, entry)
    rank = {pc: i for i, pc in enumerate(order)}
    before = predecessors(nodes)
    idom = {entry: entry}
    changed = True
    while changed:
        changed = False
        for pc in order[1:]:
            known = [p for p in before[pc] if p in idom]
            new = functools.reduce(lambda a, b: _meet(idom, rank, a, b), known)
            if idom.get(pc) != new:
                idom[pc] = new
                changed = True
    return idom


def _meet(idom: Mapping[int, int], rank: Mapping[int, int], one: int, other: int) -> int:
    """Return the closest instruction that dominates both."""
    while one != other:
        if rank[one] > rank[other]:
            one = idom[one]
        else:
            other = idom[other]
    return one


def dominates(idom: Mapping[int, int], upper: int, lower: int) -> bool:
    """Return whether every path from the entry to `lower` passes `upper`."""
    while lower != upper and idom[lower] != lower:
        lower = idom[lower]
    return lower == upper


def loops(nodes: Mapping[int, Node], idom: Mapping[int, int]) -> list[Loop]:
    """Return the natural loops; loops with the same head are merged."""
    before = predecessors(nodes)
    entry = next(pc for pc, above in idom.items() if pc == above)
    rank = {pc: i for i, pc in enumerate(_reverse_postorder(nodes, entry))}
    latches: dict[int, list[int]] = {}
    for pc, node in nodes.items():
        for head in node.successors:
            if rank[head] <= rank[pc] and dominates(idom, head, pc):
                latches.setdefault(head, []).append(pc)
    found = []
    for head, sources in latches.items():
        body, waiting = {head}, list(sources)
        while waiting:
            pc = waiting.pop()
            if pc not in body:
                body.add(pc)
                waiting += before[pc]
        found.append(Loop(head, tuple(sorted(sources)), frozenset(body)))
    return found


def heaviest_path(
    nodes: Mapping[int, Node], loop: Loop, weight: Callable[[Instruction], int]
) -> list[int]:
    """Return the heaviest path from the head of a loop to a latch, each instruction once.

    Among paths of equal weight, the one with the most instructions is chosen. A branch around loads
    or waits therefore counts as not taken.
    """
    order = _reverse_postorder(nodes, loop.head, loop.body)
    rank = {pc: i for i, pc in enumerate(order)}
    best: dict[int, tuple[int, int]] = {}
    after: dict[int, int] = {}
    for pc in reversed(order):
        node = nodes[pc]
        here = weight(node.inst)
        if pc in loop.latches:
            best[pc] = (here, 1)
        for goal in node.successors:  # a backward edge closes this or an inner loop
            if goal in best and rank[goal] > rank[pc]:
                total = best[goal][0] + here, best[goal][1] + 1
                if total > best.get(pc, (-1, 0)):
                    best[pc] = total
                    after[pc] = goal
    path = [loop.head]
    while path[-1] in after:
        path.append(after[path[-1]])
    return path


def predecessors(nodes: Mapping[int, Node]) -> dict[int, list[int]]:
    """Return the predecessors of each instruction: those after which it may execute next."""
    result: dict[int, list[int]] = {pc: [] for pc in nodes}
    for pc, node in nodes.items():
        for goal in node.successors:
            result[goal].append(pc)
    return result


def _reverse_postorder(
    nodes: Mapping[int, Node], entry: int, within: frozenset[int] | None = None
) -> list[int]:
    order: list[int] = []
    seen = {entry}
    stack = [(entry, iter(nodes[entry].successors))]
    while stack:
        pc, rest = stack[-1]
        for goal in rest:
            if goal not in seen and (within is None or goal in within):
                seen.add(goal)
                stack.append((goal, iter(nodes[goal].successors)))
                break
        else:
            order.append(pc)
            stack.pop()
    return order[::-1]
