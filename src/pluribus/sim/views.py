"""Checkers of agreed views: the members of a view agree, in everything that they pass through together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from ..core.errors import Violation
from ..core.ids import MemberId, MessageId
from .history import History

ViewKey = tuple[MessageId, tuple[int, ...]]
"""The view's name, which is its number and leader, and its members."""


class Stay:
    """One member's time in one view: what it delivered there, group by group, and where it went."""

    __slots__ = ("delivered", "groups", "key", "member", "next")

    def __init__(self, member: int, key: ViewKey) -> None:
        self.member = member
        self.key = key
        self.groups: dict[str, tuple[int, ...]] = {}
        self.delivered: dict[str, list[MessageId]] = {}
        self.next: ViewKey | None = None


def stays(history: History) -> list[Stay]:
    """Every member's views in order, with what happened in them."""
    found: list[Stay] = []
    now: dict[int, Stay] = {}
    for h in history.happenings:
        if h.what == "bus":
            stay = Stay(h.member, (h.id, h.members))
            if h.member in now:
                now[h.member].next = stay.key
            now[h.member] = stay
            found.append(stay)
        elif h.what == "view" and h.member in now:
            now[h.member].groups[h.group] = h.members
        elif h.what == "deliver" and h.member in now:
            now[h.member].delivered.setdefault(h.group, []).append(h.id)
    return found


def together(history: History) -> Iterator[list[Stay]]:
    """Groups of members that were in a view and passed to the same next view."""
    by_passage: dict[tuple[ViewKey, ViewKey], list[Stay]] = {}
    for stay in stays(history):
        if stay.next is not None:
            by_passage.setdefault((stay.key, stay.next), []).append(stay)
    yield from (found for found in by_passage.values() if len(found) > 1)


def view_agreement(history: History) -> int:
    """Every view is entered once a member, in the order of numbers; every member of it is shown the same groups."""
    checks = 0
    shown: dict[ViewKey, dict[str, tuple[int, ...]]] = {}
    last: dict[int, MessageId] = {}
    for stay in stays(history):
        checks += 1
        number, members = stay.key
        if stay.member not in members:
            raise Violation(f"{MemberId(stay.member)!r} entered view {number} without being in it")
        if number <= last.get(stay.member, (0, 0)):
            raise Violation(f"{MemberId(stay.member)!r} entered view {number} after view {last[stay.member]}")
        last[stay.member] = number
        known = shown.setdefault(stay.key, stay.groups)
        for group, group_members in stay.groups.items():
            if group_members and known.get(group, group_members) != group_members:
                raise Violation(f"members of view {number} were shown different members of {group!r}")
    return checks


def view_synchrony(history: History) -> int:
    """Members that pass from a view to the next together delivered the same messages in it."""
    checks = 0
    for passage in together(history):
        for group in sorted({group for stay in passage for group in stay.groups}):
            inside = [stay for stay in passage if stay.member in stay.groups.get(group, ())]
            for stay in inside[1:]:
                first = inside[0]
                checks += 1
                mine, theirs = set(stay.delivered.get(group, ())), set(first.delivered.get(group, ()))
                if mine != theirs:
                    example = sorted(mine ^ theirs)[0]
                    raise Violation(
                        f"{MemberId(stay.member)!r} and {MemberId(first.member)!r} left view {stay.key[0]} together, "
                        f"but only one delivered {example} in {group!r}"
                    )
    return checks


def sent_by_members(history: History) -> int:
    """What is delivered in a view was sent by a member of the group in that view."""
    checks = 0
    for stay in stays(history):
        for group, delivered in stay.delivered.items():
            members = stay.groups.get(group, ())
            for message in delivered:
                checks += 1
                if message[0] not in members:
                    raise Violation(
                        f"{MemberId(stay.member)!r} delivered {message} in view {stay.key[0]}; its sender is not in "
                        f"{group!r} there"
                    )
    return checks


def one_primary(history: History) -> int:
    """Primaries of one lineage form a chain: one view an epoch, each shares a majority with the one before."""
    links: dict[tuple[int, int], ViewKey] = {}
    checks = 0
    for h in history.of("bus"):
        if h.chain == (0, 0):
            continue
        checks += 1
        known = links.setdefault(h.chain, (h.id, h.members))
        if known != (h.id, h.members):
            raise Violation(f"two primaries of epoch {h.chain[1]}: views {known[0]} and {h.id}")
    for (lineage, epoch), (number, members) in links.items():
        earlier = [other for other in links if other[0] == lineage and other[1] < epoch]
        if not earlier:
            continue
        checks += 1
        before = links[max(earlier, key=lambda chain: chain[1])][1]
        shared = len(set(before) & set(members))
        if 2 * shared < len(before) or (2 * shared == len(before) and before[0] not in members):
            raise Violation(f"the primary of view {number} has no majority of the one before it")
    return checks


def converged(history: History) -> int:
    """Liveness: after the last fault, all members that are up are in one view, and it holds nobody else."""
    settled = next(history.of("settled"), None)
    if settled is None:
        return 0
    checks = 0
    last: dict[int, tuple[int, ...]] = {}
    for h in history.of("bus"):
        if h.at <= settled.at:
            last[h.member] = h.members
    for member in settled.members:
        checks += len(settled.members)  # each of them is looked for
        if sorted(last.get(member, ())) != sorted(settled.members):
            size, up = len(last.get(member, ())), len(settled.members)
            raise Violation(f"{MemberId(member)!r} ended in a view of {size}, but {up} members are up")
    return checks


def validity(history: History) -> int:
    """What a member sent, it delivers itself, if it is up in the end."""
    settled = next(history.of("settled"), None)
    survivors = set(settled.members) if settled is not None else set()
    own = {(h.member, h.group, h.id) for h in history.of("deliver") if h.id[0] == h.member}
    checks = 0
    for h in history.of("send"):
        if h.member in survivors:
            checks += 1
            if (h.member, h.group, h.id) not in own:
                raise Violation(f"{MemberId(h.member)!r} never delivered its own {h.id} of {h.group!r}")
    return checks


def changed_in_flight(history: History) -> int:
    """How many times a member entered a view while messages were under way: sent before, delivered somewhere later. Not
    a promise; a campaign in which that hardly happens proves nothing about views."""
    ends: dict[tuple[str, MessageId], float] = {(h.group, h.id): h.at for h in history.of("deliver")}
    sends = sorted((h.at, ends.get((h.group, h.id), h.at)) for h in history.of("send"))
    begun = [at for at, _ in sends]
    latest = list(accumulate((end for _, end in sends), max))
    entered = [bisect_left(begun, h.at) for h in history.of("bus")]
    return sum(at > 0 and latest[at - 1] > h.at for at, h in zip(entered, history.of("bus"), strict=True))
