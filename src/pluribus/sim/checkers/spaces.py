"""Checkers of tuple spaces, for each kind: nothing is taken twice, invented or lost; *replicated* is linearizable.

A happening ``call`` begins an operation, ``answer`` has its result; an operation without an answer may have happened or
not, one that is ``undone`` has not. ``void`` takes an answer of a take back, ``lost`` means that a kind has reported a
loss (of these ranges; else of all), ``flushed`` that all earlier operations of a member are kept, ``forced`` that a
primary was forced. ``registered`` makes a registration, ``event`` tells one listener of it (the number after that of
the registration) of a tuple, ``ended`` that it is over.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from math import inf
from typing import Any

import msgspec

from ...core.errors import Violation
from ...spaces.partitioned.ranges import range_of
from ...spaces.partitioned.words import RANGES
from ...spaces.values import item_of
from ..machinery.history import Happening, History
from .linearizability import Operation, explain

_decode = msgspec.msgpack.decode
CELL = "c"
"""The prefix of names of tuples that no call waits for."""
LINEAR = ("a", "b", CELL)
"""The prefixes of names of tuples that no transaction hides, and that have no lease."""
ALL = set(range(RANGES))
"""The ranges of a whole space."""
LEASE_OVER_S = 30.0
"""Seconds after which a tuple with a short lease must not be found any more."""


class Call(msgspec.Struct):
    """One operation on one space."""

    kind: str
    member: int
    what: str
    given: Any
    began: float
    ended: float = inf
    answered: bool = False
    result: Any = None
    void: bool = False
    twin: int = 0
    """The number of the write that happens in one step with this take."""
    unsure: bool = False
    """A write that belongs to a take that is void."""

    @property
    def writes(self) -> bool:
        return self.what.startswith("write")

    @property
    def takes(self) -> bool:
        return self.what.startswith("take")


def calls_of(history: History) -> dict[str, list[Call]]:
    """By kind, in the order of their beginnings."""
    open_: dict[tuple[int, int], Call] = {}
    found: dict[str, list[Call]] = {}
    for h in history.happenings:
        if h.what == "call":
            what, given, twin = _decode(h.body)
            open_[h.id] = Call(h.group, h.member, what, given, h.at, twin=twin)
            found.setdefault(h.group, []).append(open_[h.id])
        elif h.what == "undone":
            found[h.group] = [call for call in found[h.group] if call is not open_[h.id]]
        elif h.what == "answer":
            call = open_[h.id]
            call.ended, call.answered, call.result = h.at, True, _decode(h.body)
        elif h.what == "void":
            value = _decode(h.body)
            for call in found.get(h.group, ()):
                if call.member == h.member and call.takes and call.result == value:
                    call.void = True
                    if call.twin:
                        open_[h.member, call.twin].unsure = True
    return found


def taken_once(history: History) -> int:
    """No two takes are answered with the same tuple, unless one is void, or its taker crashed with it, or a primary was
    forced in between, which goes on with an older state."""
    crashed = {h.member for h in history.of("crashed")}
    forced = [h.at for h in history.of("forced")]
    checks = 0
    for kind, calls in calls_of(history).items():
        takers: dict[tuple[Any, ...], Call] = {}
        for call in calls:
            if not call.takes or call.result is None or call.void or (kind == "views" and call.member in crashed):
                continue
            checks += 1
            before = takers.setdefault(tuple(call.result), call)
            if before is not call and not (kind != "replicated" and any(_between(at, before, call) for at in forced)):
                raise Violation(
                    f"{kind}: {call.result} was taken at {before.ended:.3f} by {before.member:x} and at "
                    f"{call.ended:.3f} by {call.member:x}"
                )
    return checks


def _between(at: float, one: Call, other: Call) -> bool:
    return min(one.ended, other.ended) <= at < max(one.ended, other.ended)


def not_invented(history: History) -> int:
    """Every tuple that was read or taken had been written by a call that began before."""
    checks = 0
    for kind, calls in calls_of(history).items():
        written = {tuple(call.given): call.began for call in calls if call.writes}
        for call in calls:
            if not call.writes and call.result is not None:
                checks += 1
                if written.get(tuple(call.result), inf) > call.ended:
                    raise Violation(f"{kind}: {call.result} was found at {call.ended:.3f}, and nobody had written it")
    return checks


def not_lost(history: History) -> int:
    """What was written and kept is taken in the end: by a member that has it, or by one that never told."""
    lost = _lost(history)
    checks = 0
    for kind, calls in calls_of(history).items():
        gone = lost.get(kind, set())
        if gone == ALL:
            continue
        taken = {tuple(call.result) for call in calls if call.takes and call.result is not None}
        unknown = [call for call in calls if call.takes and not call.answered]
        missing: list[Call] = []
        for call in _kept(history, kind, calls):
            if call.what != "write" or _range(call.given) in gone:
                continue
            checks += 1
            if tuple(call.given) not in taken:
                missing.append(call)
        if len(missing) > len(unknown):
            shown = ", ".join(str(call.given) for call in missing[:5])
            raise Violation(
                f"{kind}: {len(missing)} tuples were kept and are gone, and {len(unknown)} takes are unknown: {shown}"
            )
    return checks


def leases_end(history: History) -> int:
    """No tuple is found long after its lease."""
    checks = 0
    for kind, calls in calls_of(history).items():
        leased = {tuple(call.given): call for call in calls if call.what == "write_leased"}
        checks += len(leased)
        for call in calls:
            write = None if call.result is None or call.what == "cancel" else leased.get(tuple(call.result))
            if write is not None and call.began > write.began + LEASE_OVER_S:
                raise Violation(f"{kind}: {call.result} was found at {call.ended:.3f}, long after its lease")
    return checks


def cancelled_are_gone(history: History) -> int:
    """A tuple whose lease was cancelled is not found afterwards; unless the member that cancelled it was cut off (kind
    *views*), or a primary was forced, which goes on with an older state."""
    checks = 0
    forced = [h.at for h in history.of("forced")]
    for kind, calls in calls_of(history).items():
        if kind == "views" or (kind != "replicated" and forced):
            continue
        cancelled = {tuple(call.given): call for call in calls if call.what == "cancel" and call.result is not None}
        checks += len(cancelled)
        for call in calls:
            cancel = None if call.result is None or call.what == "cancel" else cancelled.get(tuple(call.result))
            if cancel is not None and call.began > cancel.ended:
                raise Violation(
                    f"{kind}: {call.result} was found at {call.ended:.3f}, and its lease was cancelled at "
                    f"{cancel.ended:.3f}"
                )
    return checks


def events_told(history: History) -> int:
    """A registration tells of every tuple that is written from then on, or that events were dropped or lost; one
    listener is told of none twice. No registration ends by itself."""
    lost = _lost(history)
    kept = {kind: list(_kept(history, kind, calls)) for kind, calls in calls_of(history).items()}
    checks = 0
    for registered in history.of("registered"):
        kind, index = registered.group, registered.id[0]
        events = [h for h in history.of("event") if h.group == kind and h.id[0] == index]
        told: set[tuple[int, Any]] = set()
        missed, gap = 0, False
        for h in events:
            value, more, gone = _decode(h.body)
            if (h.id[1], tuple(value)) in told:
                raise Violation(f"{kind}: a listener was told of {value} twice, again at {h.at:.3f}")
            told.add((h.id[1], tuple(value)))
            missed, gap = missed + more, gap or gone
        if any(h.group == kind and h.id[0] == index for h in history.of("ended")):
            if kind not in lost:
                raise Violation(f"{kind}: the registration of {registered.at:.3f} is over, and nobody has ended it")
            continue
        values = {value for _, value in told}
        matching = [call for call in kept[kind] if call.began > registered.at]
        missing = [call for call in matching if tuple(call.given) not in values]
        checks += len(matching)
        if len(missing) > missed and not gap and kind not in lost:
            raise Violation(
                f"{kind}: the registration of {registered.at:.3f} did not tell of {[call.given for call in missing]}, "
                f"and {missed} events were said to be missed"
            )
    return checks


def _kept(history: History, kind: str, calls: list[Call]) -> Iterator[Call]:
    """Writes of which the callers know that they are kept."""
    crashed = {h.member for h in history.of("crashed")}
    flushed: dict[int, float] = {}
    for h in history.of("flushed"):
        if h.group == kind:
            flushed[h.member] = h.at
    for call in calls:
        unsure = kind == "views" and call.member in crashed and flushed.get(call.member, 0.0) < call.ended
        unsure = unsure or call.unsure
        if call.writes and call.answered and not unsure:
            yield call


def _lost(history: History) -> dict[str, set[int]]:
    """By kind: the ranges whose loss was reported. All, if the whole space was lost, or if no member was left to report
    it and the roster began anew."""
    found: dict[str, set[int]] = {}
    for h in history.of("lost"):
        found.setdefault(h.group, set()).update((_decode(h.body) if h.body else None) or ALL)
    first: dict[str, int] = {}
    for h in history.of("generation"):
        if first.setdefault(h.group, h.id[0]) != h.id[0]:
            found[h.group] = ALL
    return found


def _range(value: Any) -> int:
    """The range of a tuple in a partitioned space."""
    return range_of(item_of(tuple(value)), 0)


def own_writes_seen(history: History) -> int:
    """A worker's operations are executed in its order: what it wrote it finds, unless somebody has taken it."""
    checks = 0
    lost = _lost(history)
    for kind, calls in calls_of(history).items():
        takes = [call for call in calls if call.takes]
        for call in calls:
            if call.what != "own" or not call.answered or call.result is not None:
                checks += call.what == "own"
                continue
            if _range(call.given) in lost.get(kind, ()):
                continue
            if not any(one.began < call.ended and _may_be(one, call.given) for one in takes):
                raise Violation(f"{kind}: {call.member:x} wrote {call.given} and did not find it at {call.ended:.3f}")
    return checks


def _may_be(take: Call, value: Any) -> bool:
    return not take.answered or (take.result is not None and tuple(take.result) == tuple(value))


class Multiset:
    """The tuples of one name: a state is those that are there."""

    initial: Hashable = frozenset()

    def step(self, state: Any, operation: Operation) -> tuple[Any, Hashable]:
        if operation.what == "write":
            return None, state | {operation.arguments[0]}
        if operation.what == "own":
            return (operation.arguments[0] if operation.arguments[0] in state else None), state
        wanted = operation.result if operation.known else operation.arguments[0]
        if wanted is None or wanted not in state:
            return (None, state) if not state else ("another", state)
        return wanted, state - {wanted} if operation.what == "take" else state


def linearizable(history: History) -> int:
    """The kind *replicated*: one order explains all that callers saw. A take that found nothing tells nothing
    where others wait: the only match may have been on its way to one of them."""
    checks = 0
    by_name: dict[str, list[Operation]] = {}
    for operation, name in _cells(calls_of(history).get("replicated", [])):
        by_name.setdefault(name, []).append(operation)
    for name, operations in sorted(by_name.items()):
        checks += len(operations)
        if explain(operations, Multiset()) is None:
            raise Violation(f"replicated: nothing explains what was seen of {name!r}: {operations}")
    return checks


def _cells(calls: list[Call]) -> Iterator[tuple[Operation, str]]:
    cells = [call for call in calls if not call.given[0] or str(call.given[0]).startswith(LINEAR)]
    taken = {tuple(call.result) for call in cells if call.takes and call.result is not None}
    missing = [tuple(call.given) for call in cells if call.what == "write" and tuple(call.given) not in taken]
    for call in cells:
        name = call.given[0]
        if call.what == "write":
            yield Operation("write", (tuple(call.given),), call.began, call.ended), name
        elif call.what == "own" and call.answered:
            result = None if call.result is None else tuple(call.result)
            yield Operation("own", (tuple(call.given),), call.began, call.ended, result), name
        elif call.takes and not call.answered:
            mine = next((one for one in missing if name in ("", one[0])), None)
            if mine is not None:
                missing.remove(mine)
                yield Operation("take", (mine,), call.began), mine[0]
        elif call.answered and call.result is not None:
            what = "take" if call.takes else "read"
            yield Operation(what, (), call.began, call.ended, tuple(call.result)), call.result[0]
        elif call.answered and (call.what == "read_now" or str(name).startswith(CELL)):
            yield Operation("take" if call.takes else "read", (), call.began, call.ended), name


def crashed(member: int, at: float) -> Happening:
    """What a scenario writes down for a member that is gone."""
    return Happening(at, member, "crashed")
