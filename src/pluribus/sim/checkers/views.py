"""Checkers of agreed views: the members of a view agree, in everything that they pass through together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import History

ViewKey = tuple[MessageId, tuple[int, ...]]
"""The view's name, which is its number and leader, and its members."""


GroupViewKey = tuple[str, MessageId]
"""A group and the stamp of its view."""


class Stay:
    """One member's time in one view of the bus, and where it went."""

    __slots__ = ("key", "member", "next")

    def __init__(self, member: int, key: ViewKey) -> None:
        self.member = member
        self.key = key
        self.next: ViewKey | None = None


class GroupStay:
    """One member's time in one view of a group: what it delivered there, and where it went."""

    __slots__ = ("chain", "delivered", "key", "late", "left", "member", "members", "next")

    def __init__(self, member: int, key: GroupViewKey, members: tuple[int, ...], chain: tuple[int, int]) -> None:
        self.member = member
        self.key = key
        self.members = members
        self.chain = chain
        """The epoch of the view of the bus, if that is primary."""
        self.delivered: list[MessageId] = []
        self.late: list[MessageId] = []
        """Delivered on the way to the next primary, after views without one."""
        self.next: GroupViewKey | None = None
        self.left: GroupViewKey | None = None
        """The view that it was shown when it had left the group."""


def stays(history: History) -> list[Stay]:
    """Every member's views of the bus in order."""
    found: list[Stay] = []
    now: dict[int, Stay] = {}
    for h in history.of("bus"):
        stay = Stay(h.member, (h.id, h.members))
        if h.member in now:
            now[h.member].next = stay.key
        now[h.member] = stay
        found.append(stay)
    return found


def together(history: History) -> Iterator[list[Stay]]:
    """Those who were in a view of the bus and passed to the same next view."""
    by_passage: dict[tuple[ViewKey, ViewKey], list[Stay]] = {}
    for stay in stays(history):
        if stay.next is not None:
            by_passage.setdefault((stay.key, stay.next), []).append(stay)
    yield from (found for found in by_passage.values() if len(found) > 1)


def group_stays(history: History) -> list[GroupStay]:
    """Every member's views of its groups in order, with what it delivered in them."""
    found: list[GroupStay] = []
    now: dict[tuple[int, str], GroupStay] = {}
    primary: dict[tuple[int, str], GroupStay] = {}
    chains: dict[int, tuple[int, int]] = {}
    for h in history.happenings:
        if h.what == "bus":
            chains[h.member] = h.chain
        elif h.what == "view":
            before = now.pop((h.member, h.group), None)
            if h.member in h.members:
                chain = chains.get(h.member, (0, 0))
                stay = now[(h.member, h.group)] = GroupStay(h.member, (h.group, h.id), h.members, chain)
                if chain != (0, 0):
                    primary[(h.member, h.group)] = stay
                found.append(stay)
                if before is not None:
                    before.next = stay.key
            elif before is not None:
                before.left = (h.group, h.id)
        elif h.what == "deliver":
            here = (primary if h.late else now).get((h.member, h.group))
            if here is not None:
                (here.late if h.late else here.delivered).append(h.id)
    return found


def view_agreement(history: History) -> int:
    """Every view of the bus and of a group is entered once a member, in the order of numbers; everybody who is shown a
    view of a group is shown the same members."""
    checks = 0
    last: dict[int, MessageId] = {}
    for stay in stays(history):
        checks += 1
        number, members = stay.key
        if stay.member not in members:
            raise Violation(f"{MemberId(stay.member)!r} entered view {number} without being in it")
        if number <= last.get(stay.member, (0, 0)):
            raise Violation(f"{MemberId(stay.member)!r} entered view {number} after view {last[stay.member]}")
        last[stay.member] = number
    shown: dict[GroupViewKey, tuple[int, ...]] = {}
    latest: dict[tuple[int, str], MessageId] = {}
    for h in history.of("view"):
        checks += 1
        if h.members and shown.setdefault((h.group, h.id), h.members) != h.members:
            raise Violation(f"different members were shown in view {h.id[0]} of {h.group!r}")
        if h.id <= latest.get((h.member, h.group), (0, 0)):
            raise Violation(f"{MemberId(h.member)!r} was shown view {h.id[0]} of {h.group!r} after a later one")
        latest[(h.member, h.group)] = h.id
    return checks


def view_synchrony(history: History) -> int:
    """Members that pass from a view of a group to the next together delivered the same messages in it."""
    checks = 0
    by_passage: dict[tuple[GroupViewKey, GroupViewKey], GroupStay] = {}
    for stay in group_stays(history):
        if stay.next is None:
            continue
        first = by_passage.setdefault((stay.key, stay.next), stay)
        if first is stay:
            continue
        checks += 1
        mine, theirs = set(stay.delivered), set(first.delivered)
        if mine != theirs:
            example = sorted(mine ^ theirs)[0]
            raise Violation(
                f"{MemberId(stay.member)!r} and {MemberId(first.member)!r} left view {stay.key[1][0]} of "
                f"{stay.key[0]!r} together, but only one delivered {example}"
            )
    return checks


def sent_by_members(history: History) -> int:
    """What is delivered in a view of a group was sent by a member of it."""
    checks = 0
    for stay in group_stays(history):
        for message in stay.delivered:
            checks += 1
            if message[0] not in stay.members:
                group, number = stay.key
                raise Violation(
                    f"{MemberId(stay.member)!r} delivered {message} in view {number[0]} of {group!r}; "
                    "its sender is not in it"
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
