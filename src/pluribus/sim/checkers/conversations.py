"""Checkers of conversations: the promises to their members, whatever happens to members and network."""

from __future__ import annotations

from zlib import crc32

from ...conversations.history import PATIENCE_S, SPANS_MAX, Node
from ...conversations.words import encode
from ...core.errors import Violation
from ...core.ids import MemberId, MessageId
from ..machinery.history import Happening, History

PATIENCE_S_MIN = 0.9 * PATIENCE_S
"""A member's clock may be fast."""


def same_tree(history: History) -> int:
    """When it is quiet, every member shows the same messages, of the same writers and with the same text, each below
    the same one. One that keeps no bodies (``late``) knows all of them; it may know of more, whose bodies are gone with
    all who had them, and to which higher ones of a writer with too many gaps gave way. If it knows of no more, its tree
    is the same, too."""
    shapes = {(h.member, h.group): _identities(h.body) for h in history.of("shape")}
    trees: dict[str, Happening] = {}
    checks = 0
    for h in history.of("tree"):
        checks += len(h.body) // 16 + 1
        first = trees.setdefault(h.group, h) if not h.late else None
        if first is not None:
            _alike(h, first, shapes)
    for h in history.of("tree"):
        if h.late and h.group in trees:
            first = trees[h.group]
            known, wanted = set(_identities(h.body)), set(_identities(first.body))
            if unknown := _missing(wanted, known):
                raise Violation(f"{MemberId(h.member)!r} does not know {len(unknown)} messages of {h.group!r}")
            if wanted == known:
                _alike(h, first, shapes)
    return checks


def _alike(h: Happening, first: Happening, shapes: dict[tuple[int, str], list[tuple[int, int]]]) -> None:
    if h.body != first.body:
        raise Violation(
            f"{MemberId(h.member)!r} and {MemberId(first.member)!r} show different trees of {h.group!r} in the end: "
            f"{len(h.body) // 16} and {len(first.body) // 16} messages"
        )
    mine, theirs = shapes.get((h.member, h.group), []), shapes.get((first.member, first.group), [])
    if h.late:  # it has depths, and no texts to compare
        mine, theirs = [(depth, 0) for depth, _ in mine], [(depth, 0) for depth, _ in theirs]
    if mine != theirs:
        raise Violation(
            f"{MemberId(h.member)!r} and {MemberId(first.member)!r} show messages of {h.group!r} at different depths, "
            f"or with different words"
        )


def same_table(history: History) -> int:
    """When it is quiet, every member knows the same conversations with the same members."""
    tables = list(history.of("table"))
    for h in tables:
        if h.body != tables[0].body:
            raise Violation(f"{MemberId(h.member)!r} knows {h.body.decode()}, another one {tables[0].body.decode()}")
    return len(tables) * 10


def answered_in_order(history: History) -> int:
    """No member is given an answer before the message that it answers, unless it is marked as an orphan; no message is
    given twice. What is marked has waited as long as it is promised."""
    said_at = {(h.group, h.id): h.at for h in history.of("send")}
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
            if h.orphan and h.at - said_at.get((h.group, h.id), -PATIENCE_S) < PATIENCE_S_MIN:
                raise Violation(f"{where} as an orphan, sooner than {PATIENCE_S:g} s after it was sent")
            mine.add(h.id)
    return checks


def as_said(history: History) -> int:
    """A delivered message was sent by that writer, in that room, as an answer to that message."""
    said = {(h.group, h.id): (h.body, h.parent) for h in history.of("send")}
    writers = {message[0] for _, message in said}
    tried = {(h.group, h.body, h.parent) for h in history.of("trying")}
    checks = 0
    for h in history.of("deliver"):
        checks += 1
        found = said.get((h.group, h.id))
        if found is None and ((h.group, h.body, h.parent) in tried or h.id[0] not in writers):
            continue  # its writer crashed before the call returned, or forges in its own name
        if found != (h.body, h.parent):
            raise Violation(f"{MemberId(h.member)!r} was given {h.id} of {h.group!r}, which was not said so: {found}")
    return checks


def nothing_lost(history: History) -> int:
    """What somebody has who is in the room in the end is in every tree. Who leaves takes along what nobody else got;
    who opens a room again has what its disk kept; who keeps no bodies has nothing. Of a writer with too many gaps the
    lowest messages are in every tree; higher ones gave way to them."""
    trees = {(h.member, h.group): set(_identities(h.body)) for h in history.of("tree")}
    full = {(h.member, h.group) for h in history.of("tree") if not h.late}
    holds: dict[tuple[int, str], set[MessageId]] = {}
    for h in history.happenings:
        if h.what == "opened":
            holds[(h.member, h.group)] = set(_identities(h.body))
        elif h.what == "deliver":
            holds.setdefault((h.member, h.group), set()).add(h.id)
    held = {
        (group, message) for (member, group), known in holds.items() if (member, group) in full for message in known
    }
    checks = 0
    for (member, group), tree in trees.items():
        here = {message for name, message in held if name == group}
        checks += len(here)
        for message in _missing(here, tree)[:1]:
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


def _missing(wanted: set[MessageId], tree: set[MessageId]) -> list[MessageId]:
    """The wanted messages that are not in a tree, and did not give way there. Of a writer who left as many gaps as a
    member keeps, those above all others gave way. It is a forger, whose numbers are far apart: none that gave way is
    below one that came later."""
    numbers: dict[int, set[int]] = {}
    for writer, number in tree:
        numbers.setdefault(writer, set()).add(number)
    highest = {
        writer: max(known)
        for writer, known in numbers.items()
        if len(known) >= SPANS_MAX and sum(number - 1 not in known for number in known) >= SPANS_MAX
    }
    return [message for message in sorted(wanted - tree) if message[1] <= highest.get(message[0], message[1])]


def shown(at: float, member: int, group: str, root: Node, *, late: bool = False) -> list[Happening]:
    """What a member shows in the end: its messages from top to bottom, and the depth and the words of each. ``late``:
    it keeps no bodies."""
    walked = list(root.walk())
    looks = [
        (depth, 0 if late else crc32(encode((entry.parent, entry.by, entry.at, entry.body)))) for depth, entry in walked
    ]
    return [
        Happening(at, member, "tree", group, body=packed([entry.id for _, entry in walked]), late=late),
        Happening(at, member, "shape", group, body=packed(looks), late=late),
    ]


def _identities(packed: bytes) -> list[MessageId]:
    numbers = [int.from_bytes(packed[at : at + 8], "big") for at in range(0, len(packed), 8)]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def packed(identities: list[MessageId]) -> bytes:
    """Identities as bytes, in this order, for a happening."""
    return b"".join(number.to_bytes(8, "big") for identity in identities for number in identity)
