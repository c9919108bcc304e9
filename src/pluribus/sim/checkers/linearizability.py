"""Linearizability: whether the results of callers can be explained by one object that did one operation after another.

Theory
------
An operation has a beginning and an end; it must seem to happen at one moment in between. A history is linearizable if
its operations can be put in an order that a sequential object would have answered in the same way, and in which no
operation comes before one that ended before it began. An operation whose outcome is unknown may have happened at any
time after its beginning, or never.

The search is Wing and Gong's, with the memory that Lowe added (*Testing for linearizability*, 2017): choose one of the
operations that may be next, which are those that began before any other that is left ended; go on from there; come back
and choose another if that leads nowhere. Two ways to have done the same operations with the same state as a result have
the same future, so each is looked into once. Linearizability is local (Herlihy and Wing): objects are checked one by
one, here by their key, which keeps searches short.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import inf
from typing import Any, Protocol

import msgspec

from ...core.errors import SimulationError, Violation
from ..machinery.history import Happening, History

STEPS_MAX = 5_000_000
"""Of one search; a history that needs more is not decided."""


class Operation(msgspec.Struct, frozen=True):
    """One operation of one caller on one object. ``ended`` is infinity, and ``result`` means nothing, if the caller
    never learned the outcome."""

    what: str
    arguments: tuple[Any, ...]
    began: float
    ended: float = inf
    result: Any = None

    @property
    def known(self) -> bool:
        return self.ended < inf


class Model(Protocol):
    """The object as it would be if there were only one of it."""

    initial: Hashable

    def step(self, state: Any, operation: Operation) -> tuple[Any, Hashable]:
        """The result of an operation in this state, and the state after it."""


class Register:
    """A cell that can be read, written, compared and set, and added to; unless told otherwise it begins empty."""

    def __init__(self, initial: Hashable = None) -> None:
        self.initial = initial

    def step(self, state: Any, operation: Operation) -> tuple[Any, Hashable]:
        match operation.what, operation.arguments:
            case "get", ():
                return state, state
            case "put", (value,):
                return None, value
            case "cas", (expected, value):
                return (True, value) if state == expected else (False, state)
            case "add", (number,):
                return (state or 0) + number, (state or 0) + number
        raise SimulationError(f"a register knows no {operation.what!r} of {operation.arguments!r}")


def explain(operations: Iterable[Operation], model: Model) -> list[Operation] | None:
    """An order that explains everything that is known, or None if there is none."""
    ops = sorted(operations, key=lambda op: (op.began, op.ended))
    due = sorted((at for at, op in enumerate(ops) if op.known), key=lambda at: ops[at].ended)
    needed = sum(1 << at for at in due)
    seen: set[tuple[int, Hashable]] = set()
    path: list[int] = []
    stack = [_next(ops, due, 0)]
    states: list[Hashable] = [model.initial]
    done = 0
    for _ in range(STEPS_MAX):
        if done & needed == needed:
            return [ops[at] for at in path]
        for at in stack[-1]:
            result, state = model.step(states[-1], ops[at])
            after = done | 1 << at
            if (not ops[at].known or result == ops[at].result) and (after, state) not in seen:
                seen.add((after, state))
                path.append(at)
                states.append(state)
                stack.append(_next(ops, due, after))
                done = after
                break
        else:
            stack.pop()
            if not path:
                return None
            states.pop()
            done ^= 1 << path.pop()
    raise SimulationError(f"{len(ops)} operations were not decided in {STEPS_MAX:,} steps: use more keys")


def _next(ops: Sequence[Operation], due: Sequence[int], done: int) -> Iterator[int]:
    """The operations that may be next: those that began before the end of any that is left. Operations with a known
    outcome come first: they must happen."""
    end = next((ops[at].ended for at in due if not done >> at & 1), inf)
    unknown = []
    for at, op in enumerate(ops):
        if op.began > end:
            break
        if not done >> at & 1:
            if op.known:
                yield at
            else:
                unknown.append(at)
    yield from unknown


def linearizable(history: History) -> int:
    """Every key of a replica is a linearizable register, in each of its lives.

    A life ends when everybody who had the state is gone, or goes on as another with what somebody has (``reborn``);
    ``answer`` says in which life an operation was answered. One whose outcome is unknown may have happened in any.
    """
    checks = 0
    begins = {h.id[0]: dict(msgspec.msgpack.decode(h.body)[1]) for h in history.of("reborn")}
    for key, lives in sorted(_by_key(history).items()):
        unknown = lives.pop(None, [])
        for life, operations in sorted(lives.items(), key=lambda item: str(item[0])):
            checks += len(operations)
            last = max(op.ended for op in operations)
            open_then = [op for op in unknown if op.began <= last and op.what != "get"]
            model = Register(begins.get(life or 0, {}).get(key))
            if explain([*operations, *open_then], model) is None:
                story = _story(operations, open_then, model)
                raise Violation(f"nothing explains what {key!r} did in life {life} from {model.initial}: {story}")
    return checks


def _by_key(history: History) -> dict[str, dict[int | None, list[Operation]]]:
    """By key and life, the operations; under None those whose outcome is unknown. One that was answered from a later
    life than that in which it was applied belongs to the earlier: commands begin with the identity of their call."""
    applied: dict[tuple[int, ...], set[int]] = {}
    for h in history.of("apply"):
        applied.setdefault(tuple(msgspec.msgpack.decode(h.body)[0]), set()).add(h.id[0])
    begun: dict[tuple[int, int], tuple[Happening, str, str, tuple[Any, ...]]] = {}
    found: dict[str, dict[int | None, list[Operation]]] = {}
    for h in history.happenings:
        if h.what == "call":
            what, key, *arguments = msgspec.msgpack.decode(h.body)
            begun[h.id] = (h, what, key, tuple(arguments))
        elif h.what in ("answer", "refused"):
            began, what, key, given = begun.pop(h.id)
            if h.what == "answer":
                life, result = msgspec.msgpack.decode(h.body)
                lives = applied.get(h.id, {life})
                life = life if life in lives else min(lives)
                operation = Operation(what, given, began.at, h.at, result)
                found.setdefault(key, {}).setdefault(life, []).append(operation)
    for began, what, key, given in begun.values():
        found.setdefault(key, {}).setdefault(None, []).append(Operation(what, given, began.at))
    return found


def _story(operations: Sequence[Operation], unknown: Sequence[Operation], model: Model) -> str:
    """The shortest beginning that cannot be explained, its last few operations."""
    by_end = sorted(operations, key=lambda op: op.ended)
    low, high = 0, len(by_end)
    while low < high:  # a longer beginning of what cannot be explained cannot either
        middle = (low + high) // 2
        first = by_end[: middle + 1]
        if explain([*first, *_cut(by_end[middle + 1 :], first[-1].ended), *unknown], model) is None:
            high = middle
        else:
            low = middle + 1
    told = [f"{op.what}{op.arguments} {op.began:.4f}-{op.ended:.4f} -> {op.result}" for op in by_end[: low + 1][-6:]]
    return f"{len(operations)} operations and {len(unknown)} unknown, ... {'; '.join(told)}"


def _cut(later: Sequence[Operation], end: float) -> list[Operation]:
    """What had begun before the end, as if nothing were known of it."""
    return [Operation(op.what, op.arguments, op.began) for op in later if op.began <= end]
