"""Checkers of conversations: the promises to their members, whatever happens to members and network."""

from __future__ import annotations

from ...conversations.history import SPANS_MAX
from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import History


def same_tree(history: History) -> int:
    """When it is quiet, every member shows the same tree of messages. One that keeps no bodies (``late``) knows all of
    them; it may know of more, whose bodies are gone with all who had them."""
    trees: dict[str, tuple[int, bytes]] = {}
    checks = 0
    for h in history.of("tree"):
        checks += len(h.body) // 16 + 1
        first = trees.setdefault(h.group, (h.member, h.body)) if not h.late else None
        if first is not None and first[1] != h.body:
            raise Violation(
                f"{MemberId(h.member)!r} and {MemberId(first[0])!r} show different trees of {h.group!r} in the end: "
                f"{len(h.body) // 16} and {len(first[1]) // 16} messages"
            )
    for h in history.of("tree"):
        if h.late and h.group in trees:
            unknown = set(_identities(trees[h.group][1])) - set(_identities(h.body))
            if unknown:
                raise Violation(f"{MemberId(h.member)!r} does not know {len(unknown)} messages of {h.group!r}")
    return checks


def same_table(history: History) -> int:
    """When it is quiet, every member knows the same conversations with the same members."""
    tables = list(history.of("table"))
    for h in tables:
        if h.body != tables[0].body:
            raise Violation(f"{MemberId(h.member)!r} knows {h.body.decode()}, another one {tables[0].body.decode()}")
    return len(tables) * 10


def answered_in_order(history: History) -> int:
    """No member is given an answer before the message that it answers, unless it is marked as an orphan; no message is
    given twice."""
    had: dict[tuple[int, str], set[MessageId]] = {}
    checks = 0
    for h in history.happenings:
        if h.what == "opened":
            had[(h.member, h.group)] = set(_identities(h.body))
        elif h.what == "deliver":
            checks += 1
            mine = had.setdefault((h.member, h.group), set())
            where = f"{MemberId(h.member)!r} was given {h.id} of {h.group!r} at {h.at:.6f}"
            if h.id in mine:
                raise Violation(f"{where} a second time")
            if h.parent is not None and not h.orphan and h.parent not in mine:
                raise Violation(f"{where} before its parent {h.parent}")
            if h.orphan and h.parent in mine and h.parent != h.id:
                raise Violation(f"{where} as an orphan, after its parent {h.parent}")
            mine.add(h.id)
    return checks


def as_said(history: History) -> int:
    """A delivered message was sent by that writer, in that room, as an answer to that message."""
    said = {(h.group, h.id): (h.body, h.parent) for h in history.of("send")}
    writers = {message[0] for _, message in said}
    tried = {(h.group, h.body) for h in history.of("trying")}
    checks = 0
    for h in history.of("deliver"):
        checks += 1
        found = said.get((h.group, h.id))
        if found is None and ((h.group, h.body) in tried or h.id[0] not in writers):
            continue  # its writer crashed before the call returned, or forges in its own name
        if found != (h.body, h.parent):
            raise Violation(f"{MemberId(h.member)!r} was given {h.id} of {h.group!r}, which was not said so: {found}")
    return checks


def nothing_lost(history: History) -> int:
    """What somebody has who is in the room in the end is in every tree. Who leaves takes along what nobody else got;
    who opens a room again has what its disk kept; who keeps no bodies has nothing."""
    trees = {(h.member, h.group): set(_identities(h.body)) for h in history.of("tree")}
    full = {(h.member, h.group) for h in history.of("tree") if not h.late}
    holds: dict[tuple[int, str], set[MessageId]] = {}
    for h in history.happenings:
        if h.what == "opened":
            holds[(h.member, h.group)] = set(_identities(h.body))
        elif h.what == "deliver":
            holds.setdefault((h.member, h.group), set()).add(h.id)
    flooding = _flooding(history)
    held = {
        (group, message)
        for (member, group), known in holds.items()
        if (member, group) in full
        for message in known
        if message[0] not in flooding
    }
    checks = 0
    for (member, group), tree in trees.items():
        for name, message in sorted(held):
            if name == group:
                checks += 1
                if message not in tree:
                    raise Violation(f"{message} of {group!r} is not in the tree of {MemberId(member)!r}")
    return checks


def as_wished(history: History) -> int:
    """In the end those are members of a conversation who joined it last and did not leave it. What a process wished
    that crashed afterwards may never have been heard of."""
    there = {member for h in history.of("settled") for member in h.members}
    wishes: dict[tuple[str, str], bool] = {}
    for h in history.happenings:
        if h.what in ("join", "leave"):
            wishes.pop((h.group, h.body.decode()), None)
            if h.member in there:
                wishes[(h.group, h.body.decode())] = h.what == "join"
    tables = list(history.of("members"))
    checks = 0
    for h in tables:
        members = set(h.body.decode().split())
        for (group, person), inside in wishes.items():
            if group == h.group:
                checks += 1
                if (person in members) is not inside:
                    what = "joined" if inside else "left"
                    raise Violation(f"{person} {what} {group!r}, and {MemberId(h.member)!r} knows {sorted(members)}")
    return checks


def _flooding(history: History) -> set[int]:
    """Writers whose messages have as many gaps between them as a member keeps: higher ones gave way."""
    numbers: dict[int, set[int]] = {}
    for h in history.of("tree"):
        for writer, number in _identities(h.body):
            numbers.setdefault(writer, set()).add(number)
    return {
        writer for writer, known in numbers.items() if sum(number - 1 not in known for number in known) >= SPANS_MAX
    }


def _identities(packed: bytes) -> list[MessageId]:
    numbers = [int.from_bytes(packed[at : at + 8], "big") for at in range(0, len(packed), 8)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def packed(identities: list[MessageId]) -> bytes:
    """Identities as bytes, in this order, for a happening."""
    return b"".join(number.to_bytes(8, "big") for identity in identities for number in identity)
