"""Checkers of replicas: their states are those of one machine after the agreed commands."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from itertools import pairwise

import msgspec

from ...core.errors import Violation
from ...core.ids import MemberId
from ..machinery.history import Happening, History

_encode, _decode = msgspec.msgpack.encode, msgspec.msgpack.decode

Place = tuple[int, int]
"""A life of the replica, and an index in it."""


def agreed(history: History) -> dict[Place, bytes]:
    """By place, the command that was applied there; all members agree on it."""
    found: dict[Place, bytes] = {}
    for h in history.of("apply"):
        if found.setdefault(h.id, h.body) != h.body:
            raise Violation(f"{MemberId(h.member)!r} applied another command than others at index {h.id[1]}")
    return found


def one_sequence(history: History) -> int:
    """Every member applies all agreed commands from where its state begins, one after another and each once. A life
    begins only where nobody has a state: ``began`` names who was there."""
    commands = agreed(history)
    reborn_alike(history)
    indices: dict[int, list[int]] = {}
    for life, index in sorted(commands):
        indices.setdefault(life, []).append(index)
    after = {(life, index): later for life in indices for index, later in pairwise(indices[life])}
    expected: dict[int, Place | None] = {}
    """By member, what it must apply next, if the state that it was given says so."""
    checks = 0
    for h in history.happenings:
        if h.what == "began":
            keeper = next((member for member in h.members if member in expected and member != h.member), None)
            if keeper is not None:
                raise Violation(f"{MemberId(h.member)!r} began anew at {h.at:.6f} beside {MemberId(keeper)!r}")
        elif h.what in ("state", "reborn"):
            life, index = h.id
            expected[h.member] = next(((life, at) for at in indices.get(life, ()) if at >= index), None)
        elif h.what == "gone":
            expected.pop(h.member, None)
        elif h.what == "apply":
            checks += 1
            wanted = expected.get(h.member, (h.id[0], indices[h.id[0]][0]))
            if wanted is not None and h.id != wanted:
                raise Violation(
                    f"{MemberId(h.member)!r} applied index {h.id[1]} at {h.at:.6f} where {wanted[1]} was next"
                )
            later = after.get(h.id)
            expected[h.member] = None if later is None else (h.id[0], later)
    return checks


def reborn_alike(history: History) -> int:
    """Members with which a life goes on in another chain of primaries go on with the same."""
    first: dict[int, Happening] = {}
    for h in history.of("reborn"):
        known = first.setdefault(h.id[0], h)
        if (known.id, known.body) != (h.id, h.body):
            raise Violation(f"{MemberId(h.member)!r} and {MemberId(known.member)!r} went on with different states")
    return len(first)


def once(identity: Callable[[bytes], object]) -> Callable[[History], int]:
    """No command is applied at two places of one life, however often it was repeated."""

    def check(history: History) -> int:
        seen: dict[tuple[int, object], int] = {}
        commands = agreed(history)
        for (life, index), command in commands.items():
            first = seen.setdefault((life, identity(command)), index)
            if first != index:
                raise Violation(f"the command {identity(command)!r} was applied at index {first} and again at {index}")
        return len(commands)

    return check


def folded(machine: Callable[[], Fold]) -> Callable[[History], int]:
    """A state that a member was given, or has after a command, is what one machine has after the same commands."""

    def check(history: History) -> int:
        commands = agreed(history)
        given: dict[int, list[Happening]] = {}
        for h in history.happenings:
            if h.what in ("state", "after"):
                given.setdefault(h.id[0], []).append(h)
        checks = 0
        parents = {h.id[0]: h for h in history.of("reborn")}
        for life, states in given.items():
            oracle, at = machine(), 0
            if life in parents:
                oracle.restore(_encode(_decode(parents[life].body)[1]))
            places = sorted(index for of, index in commands if of == life)
            for h in sorted(states, key=lambda state: state.id[1]):
                while at < len(places) and places[at] < h.id[1]:
                    oracle.apply(places[at], commands[(life, places[at])])
                    at += 1
                checks += 1
                if digest(oracle.snapshot()) != h.body:
                    raise Violation(
                        f"{MemberId(h.member)!r} had another state at index {h.id[1]} at {h.at:.6f} than the commands "
                        "before it make"
                    )
        return checks

    return check


def digest(state: bytes) -> bytes:
    return blake2b(state, digest_size=8).digest()


class Fold:
    """What ``folded`` folds with."""

    def apply(self, index: int, command: bytes) -> bytes:
        raise NotImplementedError

    def snapshot(self) -> bytes:
        raise NotImplementedError

    def restore(self, state: bytes) -> None:
        raise NotImplementedError


def same_in_the_end(history: History) -> int:
    """Liveness: after the last fault, all members that are up have the same life, index and cells."""
    ends = list(history.of("end"))
    for h in ends[1:]:
        if (h.id, h.body) != (ends[0].id, ends[0].body):
            raise Violation(f"{MemberId(h.member)!r} and {MemberId(ends[0].member)!r} ended with different states")
    return sum(len(_decode(h.body)) for h in ends)


def answered(history: History) -> int:
    """Liveness: calls after the last fault are answered."""
    settled = next(history.of("settled"), None)
    if settled is None:
        return 0
    calls = {h.id for h in history.of("call") if h.at > settled.at}
    answers = {h.id for h in history.of("answer")}
    for call in sorted(calls - answers):
        raise Violation(f"the call {call} was made after all faults and never answered")
    return len(calls)
