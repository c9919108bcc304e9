"""The promises to subscribers of topics, as functions that read a history; see ``checkers``.

Happenings of this kind have the subscription's label as their group: ``publish`` (the event, its topic as body),
``begun`` (a subscription), ``ended`` (it is closed), ``asks`` (it wants the next event, if it shares), ``arrive`` (an
event in a member's group, with the epoch of its publisher there as chain), ``came`` (an event in a member's safe group,
for those that share), ``deliver`` (to a subscription; ``orphan`` says that it was given again), ``gap`` (told to a
subscription), ``cut`` (a member is not in the primary, or meets members of another side, who may have taken it for
dead), ``primary`` (a member has this view of the primary). An *epoch* of a publisher at a member ends when the
publisher is out of the member's view, or comes from another side of a partition: only there may events be missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ...pubsub.topics import matches
from ..machinery.history import Happening, History

STILL_S = 20.0
"""Longer than a member stands still, with what it takes to miss it."""
LAST_S = 10.0
"""Events that came so shortly before everything was calm may still wait."""
BACK_S = 5.0
"""In which a member that was cut off is in its sets again."""
BEGINNING_S = 1.0
"""In which members that begin together find each other."""
NEVER = float("-inf")
RELIABLE, TOTAL, SHARED = "reliable", "total", "shared"


def pattern_of(label: str) -> str:
    """Labels are ``kind pattern number``."""
    return label.split(" ")[1]


def kind_of(label: str) -> str:
    return label.split(" ")[0]


def asked_for(history: History) -> int:
    """A delivered event was published, matches, and comes once; where it is not shared, in the order of its
    publisher."""
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
        if kind_of(h.group) == SHARED:  # what was given back comes later
            continue
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
    from the first of that on nothing that the other did not: since they were last told of a gap. A member that is cut
    off may have been ahead of what the others agreed on. For subscriptions to one pattern."""
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
    """Of a set that shares events, one gets an event for the first time; one that gets it again is told so. Where a
    primary gave way to another, or a group went on with an older state, and said so, what was begun there is not
    known."""
    taken: dict[tuple[str, MessageId], int] = {}
    checks = 0
    for h in history.happenings:
        if h.what == "lost":
            taken.clear()
        if h.what != "deliver" or kind_of(h.group) != SHARED:
            continue
        checks += 1
        if h.orphan:
            continue
        key = (pattern_of(h.group), h.id)
        if key in taken:
            raise Violation(f"{h.id} went to {_who(h)} and to {MemberId(taken[key])!r}, who share {key[0]!r}")
        taken[key] = h.member
    return checks


def begun_once(history: History) -> int:
    """An event that a subscriber of a set has begun is begun by another one only if the first had left the set, or was
    cut off, or the primary had gone on without its member. A member that stood still may begin an event after that, so
    views of ``STILL_S`` before count too."""
    over: dict[tuple[int, str], float] = {}
    cut: dict[int, float] = {}
    without: dict[int, float] = {}
    known: set[int] = set()
    begun: dict[tuple[str, MessageId], list[Happening]] = defaultdict(list)
    checks = 0
    for h in history.happenings:
        if h.what == "cut":
            cut[h.member] = h.at
        elif h.what == "ended":
            over[h.member, h.group] = h.at
        elif h.what == "primary":
            for member in known - set(h.members):
                without[member] = h.at
            known.update(h.members)
        elif h.what == "lost":
            begun.clear()
        elif h.what == "deliver" and kind_of(h.group) == SHARED:
            before = begun[pattern_of(h.group), h.id]
            for one in before:
                checks += 1
                gone = max(cut.get(one.member, NEVER), without.get(one.member, NEVER), cut.get(h.member, NEVER))
                if (one.member, one.group) not in over and gone < one.at - STILL_S:
                    raise Violation(f"{_who(h)} began {h.id} at {h.at:.6f}, which {_who(one)} had begun and is there")
            before.append(h)
            checks += 1
    return checks


def none_forgotten(history: History) -> int:
    """An event that came to a set was begun by somebody in the end, if a subscriber that was in the set when it came
    stayed, and was not cut off, nor taken for dead, after that."""
    begun = {(pattern_of(h.group), h.id) for h in history.of("deliver") if kind_of(h.group) == SHARED}
    checks = 0
    for h, pattern in _came_to_who_stayed(history):
        checks += 1
        if (pattern, h.id) not in begun:
            raise Violation(f"{h.id} came to {_who(h)} at {h.at:.6f}, who shares {pattern!r}: it was forgotten")
    return checks


def none_abandoned(history: History) -> int:
    """Such an event is not left with a subscriber that began it and then was gone, or cut off, before it asked for the
    next one: another one begins it again."""
    broken = _broken(history)
    there = {member for h in history.of("settled") for member in h.members}
    ended = {(h.member, h.group) for h in history.of("ended")}
    asked: dict[tuple[int, str], float] = {}
    for h in history.of("asks"):
        asked[h.member, h.group] = h.at
    last: dict[tuple[str, MessageId], Happening] = {}
    lost_at = -1.0
    for h in history.happenings:
        if h.what == "lost":
            lost_at = h.at
        elif h.what == "deliver" and kind_of(h.group) == SHARED:
            last[pattern_of(h.group), h.id] = h
    checks = 0
    for h, pattern in _came_to_who_stayed(history):
        one = last.get((pattern, h.id))
        if one is None or h.at < lost_at:
            continue
        checks += 1
        taker = (one.member, one.group)
        stays = one.member in there and taker not in ended and broken.get(one.member, 0.0) < one.at
        if not stays and asked[taker] < one.at:
            raise Violation(f"{_who(one)} began {h.id} at {one.at:.6f} and is gone: nobody began it again")
    return checks


def _broken(history: History) -> dict[int, float]:
    """When each member was cut off last, or taken for dead."""
    broken: dict[int, float] = {}
    known: set[int] = set()
    out: set[int] = set()
    for h in history.happenings:
        if h.what == "cut" and h.at > BEGINNING_S:
            broken[h.member] = h.at
            out.add(h.member)
        elif h.what == "primary":
            if h.member in out:
                broken[h.member] = h.at
                out.discard(h.member)
            broken |= dict.fromkeys(known - set(h.members), h.at)
            known.update(h.members)
    return broken


def _came_to_who_stayed(history: History) -> Iterator[tuple[Happening, str]]:
    """Events that came to a member with a subscription that shares them and stays, with its pattern; not those of the
    end."""
    settled = next((h for h in history.of("settled")), None)
    if settled is None:
        return
    broken = _broken(history)
    ended = {(h.member, h.group) for h in history.of("ended")}
    since: dict[tuple[int, str], float] = {}
    for h in history.of("begun"):
        if kind_of(h.group) == SHARED and h.member in settled.members and (h.member, h.group) not in ended:
            since[h.member, pattern_of(h.group)] = max(h.at, broken.get(h.member, 0.0) + BACK_S)
    for h in history.of("came"):
        for (member, pattern), at in since.items():
            if member == h.member and at < h.at < settled.at - LAST_S and matches(pattern, h.body.decode()):
                yield h, pattern


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
