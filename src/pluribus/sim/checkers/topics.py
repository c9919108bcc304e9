"""The promises to subscribers of topics, as functions that read a history; see ``checkers``.

Happenings of this kind have the subscription's label as their group: ``publish`` (the event, its topic as body),
``begun`` (a subscription), ``arrive`` (an event in a member's group, with the epoch of its publisher there as chain),
``deliver`` (to a subscription; ``orphan`` says that it was given again), ``gap`` (told to a subscription), ``cut`` (a
member is not in the primary, or meets members of another side, who may have taken it for dead). An *epoch* of a
publisher at a member ends when the publisher is out of the member's view, or comes from another side of a partition:
only there may events be missing.
"""

from __future__ import annotations

from collections import defaultdict

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ...pubsub.topics import matches
from ..machinery.history import Happening, History

RELIABLE, TOTAL, SHARED = "reliable", "total", "shared"


def pattern_of(label: str) -> str:
    """Labels are ``kind pattern number``."""
    return label.split(" ")[1]


def kind_of(label: str) -> str:
    return label.split(" ")[0]


def asked_for(history: History) -> int:
    """A delivered event was published, matches, and comes once, in the order of its publisher."""
    published = {h.id: h.body.decode() for h in history.of("publish")}
    last: dict[tuple[int, str, int], int] = {}
    seen: set[tuple[int, str, MessageId]] = set()
    checks = 0
    for h in history.of("deliver"):
        checks += 1
        topic = published.get(h.id)
        if topic is None:
            raise Violation(f"{_who(h)} got {h.id} for {h.group!r}, which nobody published")
        if not matches(pattern_of(h.group), topic) or topic != h.body.decode():
            raise Violation(f"{_who(h)} got {h.id} under {topic!r} for {h.group!r}, which did not ask for it")
        if h.orphan:
            continue
        key = (h.member, h.group, h.id)
        if key in seen:
            raise Violation(f"{_who(h)} got {h.id} for {h.group!r} a second time at {h.at:.6f}")
        seen.add(key)
        stream = (h.member, h.group, h.id[0])
        if h.id[1] <= last.get(stream, -1):
            raise Violation(f"{_who(h)} got {h.id} for {h.group!r} after {last[stream]} of the same publisher")
        last[stream] = h.id[1]
    return checks


def contiguous(history: History) -> int:
    """Within an epoch no event of a publisher is missing at a member."""
    last: dict[tuple[int, int, tuple[int, int]], int] = {}
    checks = 0
    for h in history.of("arrive"):
        checks += 1
        key = (h.member, h.id[0], h.chain)
        if key in last and h.id[1] != last[key] + 1:
            raise Violation(f"{_who(h)} has {h.id} after {last[key]} at {h.at:.6f}: some are missing")
        last[key] = h.id[1]
    return checks


def complete(history: History) -> int:
    """A reliable subscription that was there to the end got every matching event that arrived since it began."""
    settled = next((h for h in history.of("settled")), None)
    if settled is None:
        return 0
    published = {h.id: h.body.decode() for h in history.of("publish")}
    delivered = {(h.member, h.group, h.id) for h in history.of("deliver")}
    begun: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for h in history.of("begun"):
        if h.member in settled.members and kind_of(h.group) == RELIABLE:
            begun[h.member].append((h.at, h.group))
    checks = 0
    for h in history.of("arrive"):
        for at, label in begun[h.member]:
            if h.at > at and matches(pattern_of(label), published[h.id]):
                checks += 1
                if (h.member, label, h.id) not in delivered:
                    raise Violation(f"{label!r} at {_who(h)} never got {h.id}, which arrived at {h.at:.6f}")
    return checks


def agreed(history: History) -> int:
    """Subscriptions in total order, of members that stayed to the end, got what both of them got in the same order, and
    from the first of that on nothing that the other did not: since they were last told of a gap. Who is cut off may
    have been ahead of what the others agreed on. For subscriptions to one pattern."""
    settled = next((h for h in history.of("settled")), None)
    orders: dict[tuple[int, str], list[MessageId]] = defaultdict(list)
    for h in history.happenings:
        if h.what == "deliver" and kind_of(h.group) == TOTAL:
            orders[(h.member, h.group)].append(h.id)
        elif h.what == "gap":
            orders[(h.member, h.group)].clear()
    orders = {key: found for key, found in orders.items() if settled is not None and key[0] in settled.members}
    checks = 0
    found = list(orders.values())
    for place, one in enumerate(found):
        at = {id: number for number, id in enumerate(one)}
        for other in found[place + 1 :]:
            common = [at[id] for id in other if id in at]
            checks += len(common)
            if common != sorted(common):
                raise Violation("two subscriptions in total order got the same events in different orders")
            if common and one[common[0] :] != other[other.index(one[common[0]]) :]:
                raise Violation(
                    f"two subscriptions in total order parted behind {one[common[0]]}: one missed something"
                )
    return checks


def shared_once(history: History) -> int:
    """Of a set that shares events, one gets an event for the first time; who gets it again is told so."""
    taken: dict[tuple[str, MessageId], int] = {}
    checks = 0
    for h in history.of("deliver"):
        if kind_of(h.group) != SHARED:
            continue
        checks += 1
        if h.orphan:
            continue
        key = (pattern_of(h.group), h.id)
        if key in taken:
            raise Violation(f"{h.id} went to {_who(h)} and to {MemberId(taken[key])!r}, who share {key[0]!r}")
        taken[key] = h.member
    return checks


def finished_once(history: History) -> int:
    """An event that a subscriber of a set has finished, as it was handed the next one, is not begun by another after
    that. A subscriber that was cut off finishes nothing any more: others may have its events already. Where a primary
    gave way to another, or a group went on with an older state, and said so, what was finished there is not known."""
    cut: dict[int, float] = {}
    for h in history.of("cut"):
        cut.setdefault(h.member, h.at)
    under_way: dict[tuple[int, str], MessageId] = {}
    finished: dict[tuple[str, MessageId], Happening] = {}
    checks = 0
    for h in history.happenings:
        if h.what == "lost":
            finished.clear()
        if h.what != "deliver" or kind_of(h.group) != SHARED:
            continue
        pattern = pattern_of(h.group)
        done = finished.get((pattern, h.id))
        if done is not None:
            raise Violation(f"{_who(h)} was given {h.id} though {_who(done)} had finished it at {done.at:.6f}")
        before = under_way.get((h.member, h.group))
        if before is not None and h.at < cut.get(h.member, float("inf")):
            checks += 1
            finished[(pattern, before)] = h
        under_way[(h.member, h.group)] = h.id
    return checks


def arrived_in_the_end(history: History) -> int:
    """What was published after the last fault reached every subscription that matches, and one of those that share."""
    settled = next((h for h in history.of("settled")), None)
    if settled is None:
        return 0
    there = [h for h in history.of("begun") if h.member in settled.members]
    delivered = {(h.member, h.group, h.id) for h in history.of("deliver")}
    shared = {(pattern_of(h.group), h.id) for h in history.of("deliver") if kind_of(h.group) == SHARED}
    checks = 0
    for event in history.of("publish"):
        if event.at <= settled.at:
            continue
        for h in there:
            pattern = pattern_of(h.group)
            if not matches(pattern, event.body.decode()):
                continue
            checks += 1
            got = (
                (pattern, event.id) in shared
                if kind_of(h.group) == SHARED
                else (h.member, h.group, event.id) in delivered
            )
            if not got:
                raise Violation(f"{event.id}, published at {event.at:.6f} after all faults, never came to {h.group!r}")
    return checks


def _who(h: Happening) -> str:
    return repr(MemberId(h.member))
