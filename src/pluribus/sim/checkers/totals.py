"""Checkers of total and safe order, and of the reports to members that miss some of it."""

from __future__ import annotations

from collections.abc import Collection

from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import History
from .orders import groups_of
from .views import GroupStay, GroupViewKey, ViewKey, group_stays, together

Place = tuple[str, MessageId]


def total(history: History) -> int:
    """Members that leave a view together delivered what both delivered, of all groups, in the same order."""
    checks = 0
    sequences = _sequences(history, groups_of(history, "total"))
    for passage in together(history):
        first, *rest = passage
        theirs = sequences[(first.member, first.key)]
        for stay in rest:
            checks += len(theirs)
            mine = sequences[(stay.member, stay.key)]
            shared = set(mine) & set(theirs)
            one, other = [m for m in mine if m in shared], [m for m in theirs if m in shared]
            if one != other:
                at = next(at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
                who, whom = MemberId(stay.member), MemberId(first.member)
                raise Violation(
                    f"in view {stay.key[0]} {who!r} delivered {one[at]} where {whom!r} delivered {other[at]}"
                )
    return checks


def safe(history: History) -> int:
    """Uniform: of two members of a group's view, whether they survived it or not, one delivered a beginning of what the
    other did."""
    checks = 0
    groups = groups_of(history, "safe")
    longest: dict[GroupViewKey, GroupStay] = {}
    for stay in sorted(group_stays(history), key=lambda stay: -len(stay.delivered + stay.late)):
        if stay.key[0] not in groups:
            continue
        most = longest.setdefault(stay.key, stay)
        checks += len(stay.delivered)
        for mine, theirs in zip(stay.delivered + stay.late, most.delivered + most.late, strict=False):
            if mine != theirs:
                raise Violation(
                    f"in view {stay.key[1][0]} of {stay.key[0]!r} {MemberId(stay.member)!r} delivered {mine} where "
                    f"{MemberId(most.member)!r} delivered {theirs}"
                )
    return checks


def as_those_who_went_on(history: History) -> int:
    """What a member delivered in a view of a totally ordered group is a beginning of what those delivered who went on
    from there, to the group's next view or the next primary, also if it was left behind and did not know. Only where
    nothing is lost and nobody cut off: else a sequencer may have delivered what never reached anybody."""
    checks = 0
    groups = groups_of(history, "total")
    epochs: dict[int, set[int]] = {}
    for h in history.of("bus"):
        epochs.setdefault(h.chain[0], set()).add(h.chain[1])
    stays = [stay for stay in group_stays(history) if stay.key[0] in groups and stay.chain[0]]
    found = {(stay.member, stay.key): stay for stay in stays}
    ahead: dict[GroupViewKey, GroupStay] = {}
    for stay in stays:
        lineage, epoch = stay.chain
        after = found.get((stay.member, stay.next)) if stay.next is not None else None
        next_epoch = min((other for other in epochs[lineage] if other > epoch), default=0)
        if after is not None and after.chain in (stay.chain, (lineage, next_epoch)):
            ahead.setdefault(stay.key, stay)
    for stay in stays:
        leader = ahead.get(stay.key)
        if leader is None or leader is stay:
            continue
        theirs = leader.delivered + leader.late
        checks += len(stay.delivered)
        if stay.delivered != theirs[: len(stay.delivered)]:
            at = next(
                (at for at, (a, b) in enumerate(zip(stay.delivered, theirs, strict=False)) if a != b), len(theirs)
            )
            who, whom = MemberId(stay.member), MemberId(leader.member)
            raise Violation(
                f"in view {stay.key[1][0]} of {stay.key[0]!r} {who!r} delivered {stay.delivered[at]} at place {at}, "
                f"and {whom!r}, who went on, did not"
            )
    return checks


def survives(history: History) -> int:
    """What anybody delivered in a safe group of a primary is delivered by everybody who was in that view of the group
    and is in the group when the next link of the chain forms; and they come there with the same."""
    checks = 0
    groups = groups_of(history, "safe")
    links: dict[int, list[int]] = {}
    for h in history.of("bus"):
        if h.chain[0]:
            links.setdefault(h.chain[0], []).append(h.chain[1])
    stays = [stay for stay in group_stays(history) if stay.key[0] in groups]
    most: dict[GroupViewKey, GroupStay] = {}
    for stay in stays:
        best = most.setdefault(stay.key, stay)
        if len(stay.delivered) > len(best.delivered):
            most[stay.key] = stay
    came = _next_primaries(stays)
    first: dict[tuple[GroupViewKey, int], GroupStay] = {}
    for stay in stays:
        lineage, epoch = stay.chain
        after = min((other for other in links.get(lineage, ()) if other > epoch), default=0)
        if not after or came.get(id(stay)) != (lineage, after):
            continue
        best = most[stay.key]
        mine = {*stay.delivered, *stay.late}
        checks += len(best.delivered)
        missing = [message for message in best.delivered if message not in mine]
        if missing:
            raise Violation(
                f"{MemberId(stay.member)!r} came from primary {epoch} to {after} without {missing[0]} of "
                f"{stay.key[0]!r}, which {MemberId(best.member)!r} had delivered"
            )
        other = first.setdefault((stay.key, after), stay)
        if mine != {*other.delivered, *other.late}:
            who, whom = MemberId(stay.member), MemberId(other.member)
            raise Violation(f"{who!r} and {whom!r} came from primary {epoch} to {after} with different messages")
    return checks


def _next_primaries(stays: list[GroupStay]) -> dict[int, tuple[int, int]]:
    """By stay in a group's last view of a primary: the next primary that the member was in, if it was in the group all
    the time between."""
    found: dict[int, tuple[int, int]] = {}
    chain_of: dict[tuple[int, GroupViewKey], GroupStay] = {(stay.member, stay.key): stay for stay in stays}
    for stay in stays:
        if stay.chain == (0, 0):
            continue
        follower = stay
        while follower.next is not None and (follower is stay or follower.chain == (0, 0)):
            follower = chain_of[(stay.member, follower.next)]
        if follower is not stay and follower.chain not in ((0, 0), stay.chain):
            found[id(stay)] = follower.chain
    return found


def reported(history: History) -> int:
    """What a member that is up in the end sent to a totally ordered group it delivers itself, or it is told that it is
    uncertain; both only if it came late. A member that leaves the group does not wait for the answer."""
    settled = next(history.of("settled"), None)
    survivors = set(settled.members) if settled is not None else set()
    groups = groups_of(history, "total")
    own = {(h.group, h.id) for h in history.of("deliver") if h.id[0] == h.member}
    late = {(h.group, h.id) for h in history.of("deliver") if h.id[0] == h.member and h.late}
    uncertain = {(h.group, h.id) for h in history.of("uncertain")}
    left = {(h.member, h.group): h.at for h in history.of("view") if h.member not in h.members}
    checks = 0
    for h in history.of("send"):
        if h.member in survivors and h.group in groups:
            checks += 1
            place = (h.group, h.id)
            if place not in own and place not in uncertain and h.at > left.get((h.member, h.group), -1.0):
                raise Violation(f"{MemberId(h.member)!r} never learned what became of its {h.id} of {h.group!r}")
            if place in own and place in uncertain and place not in late:
                raise Violation(f"{MemberId(h.member)!r} delivered {h.id} of {h.group!r}, and was told it is uncertain")
    return checks


def excluded(history: History) -> int:
    """A member that enters a primary is told that it was excluded if another member of it comes from a later primary of
    the same chain than it does itself, and only then."""
    entered: dict[int, list[tuple[MessageId, tuple[int, int]]]] = {}
    for h in history.of("bus"):
        if h.chain != (0, 0):
            entered.setdefault(h.member, []).append((h.id, h.chain))
    told = {(h.member, h.id) for h in history.of("excluded")}
    checks = 0
    for h in history.of("bus"):
        lineage = h.chain[0]
        before = {
            member: [chain for view, chain in entered.get(member, ()) if view < h.id][-1:] for member in h.members
        }
        mine = before.get(h.member)
        if not lineage or not mine or mine[0][0] != lineage:
            continue
        checks += 1
        latest = max(chain for chains in before.values() for chain in chains if chain[0] == lineage)
        if (latest > mine[0]) is not ((h.member, h.id) in told):
            what = "was not told that it missed one" if latest > mine[0] else "was told that it missed one"
            raise Violation(f"{MemberId(h.member)!r} came from primary {mine[0][1]} to {h.chain[1]} and {what}")
    return checks


def _sequences(history: History, groups: Collection[str]) -> dict[tuple[int, ViewKey], list[Place]]:
    """By member and view: what it delivered in these groups, in one sequence."""
    found: dict[tuple[int, ViewKey], list[Place]] = {}
    now: dict[int, ViewKey] = {}
    for h in history.happenings:
        if h.what == "bus":
            now[h.member] = (h.id, h.members)
            found[(h.member, now[h.member])] = []
        elif h.what == "deliver" and h.member in now and h.group in groups:
            found[(h.member, now[h.member])].append((h.group, h.id))
    return found
