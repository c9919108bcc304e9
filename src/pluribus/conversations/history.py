"""The history of one conversation at one member: a forest of messages, in whatever order they come.

Theory of operation
-------------------
Every message may answer one other. A message is *delivered* to the application when the message that it answers was, or
at once if it answers none. Until then it waits; a parent that does not come within ``PATIENCE_S``, or a crowd of more
than ``WAITING_MAX`` that wait, makes *orphans*: delivered without their parent. If the parent comes after all, it is
delivered then, and the tree puts the orphan under it.

The tree depends only on the messages that are there: members that hold the same messages show the same tree, in
whatever order they came. Answers to a message stand in the order of their writers' clocks. Messages that answer each
other in a circle, which must be forged, hang below the one with the least identity.

A message is known by its identity. A second message of a known identity is refused (the first counts): it is forged or
damaged.

*Gaps.* Of a writer that leaves very many gaps in its numbers the lowest ``SPANS_MAX`` intervals are kept: a message
that makes one more is refused if it is above all of them, and else takes the place of the highest interval. So members
keep the same messages of such a writer, in whatever order they came, and do not ask for the others again and again.

Retention. With more than ``messages_max`` messages or ``bytes_max`` bytes, the oldest messages of the writer that has
most are forgotten: a writer of a flood loses its own. Forgotten identities stay known, so that they are not asked for
again and count as delivered; they are ``lost``: this member cannot give their messages to others. A member that keeps
identities alone forgets each body as soon as it is delivered, but for those of its own person, which no other member
may have yet.

Bounds: messages and bytes as said, ``WRITERS_MAX`` writers with ``SPANS_MAX`` intervals each, ``WAITING_MAX``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from ..core.ids import MessageId
from ..core.intervals import Intervals
from .words import CLOCK_MAX_S, Entry, add_identity

PATIENCE_S = 20.0
LOOK_S = 1.0
"""Seconds between two looks for messages that have waited long enough."""
WAITING_MAX = 10_000
WRITERS_MAX = 16_384
SPANS_MAX = 1_024
MESSAGES_MAX = 1_000_000
BYTES_MAX = 512 << 20
FORGET_PART = 64
"""The part of the limit that is freed at once, as a divisor, so that the search for messages to forget is rare."""


class Delivered(msgspec.Struct, frozen=True):
    """A message for the application."""

    entry: Entry
    orphan: bool = False


class Node:
    """A message with its answers. ``entry`` is None at the root of all."""

    __slots__ = ("answers", "entry")

    def __init__(self, entry: Entry | None) -> None:
        self.entry = entry
        self.answers: list[Node] = []

    def walk(self) -> Iterator[tuple[int, Entry]]:
        """Depth and message, each before its answers."""
        stack = [(0, node) for node in reversed(self.answers)]
        while stack:
            depth, node = stack.pop()
            if node.entry is not None:
                yield depth, node.entry
            stack.extend((depth + 1, answer) for answer in reversed(node.answers))


class History:
    """``add`` takes new messages, ``tick`` ends their patience; both return the messages that are delivered then."""

    def __init__(
        self,
        *,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        identities_only: bool = False,
        person: str = "",
    ) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.identities_only = identities_only
        self._person = person
        self.have: dict[int, Intervals] = {}
        """By writer: identities that came, forgotten or not."""
        self.lost: dict[int, Intervals] = {}
        """By writer: identities that came, and whose bodies are not here any more."""
        self._entries: dict[MessageId, Entry] = {}
        self._of: dict[int, deque[MessageId]] = {}
        self._children: dict[MessageId, dict[MessageId, None]] = {}
        """By parent: messages that wait for it."""
        self._waiting: dict[MessageId, float] = {}
        self._evicted: dict[MessageId, None] = {}
        """Messages that were delivered and gave way to lower ones: they are not delivered again."""
        self._look_at: float | None = None
        self._order: dict[MessageId, None] = {}
        self.bytes = 0
        self.refused = 0
        self.conflicts = 0
        self.forgotten = 0
        self.orphans = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, identity: MessageId) -> bool:
        known = self.have.get(identity[0])
        return known is not None and identity[1] in known

    def get(self, identity: MessageId) -> Entry | None:
        return self._entries.get(identity)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, entry: Entry, now: float) -> list[Delivered]:
        if entry.id in self:
            known = self._entries.get(entry.id)
            if known is not None and known.body is not None and known != entry:
                self.conflicts += 1
            return []
        if not self._fits(entry):
            self.refused += 1
            return []
        add_identity(self.have, entry.id)
        self._entries[entry.id] = entry
        self._of.setdefault(entry.id[0], deque()).append(entry.id)
        self.bytes += entry.size
        parent = entry.parent
        if parent is not None and parent not in self._evicted and (parent not in self or parent in self._waiting):
            self._children.setdefault(parent, {})[entry.id] = None
            self._waiting[entry.id] = now
            if self._look_at is None:
                self._look_at = now + PATIENCE_S
            found = []
            if len(self._waiting) > WAITING_MAX:
                found = self._orphan(list(islice(self._waiting, WAITING_MAX // FORGET_PART + 1)))
        else:
            found = self._deliver([(entry.id, parent == entry.id)])
        if len(self._entries) > self.messages_max or self.bytes > self.bytes_max:
            self._forget_some()
        return found

    def _fits(self, entry: Entry) -> bool:
        if not 0 <= entry.at < CLOCK_MAX_S:  # NaN, too: trees are sorted by it
            return False
        known = self.have.get(entry.id[0])
        if known is None:
            return self.takes(entry.id[0])
        writer, number = entry.id
        if len(known) < SPANS_MAX or number - 1 in known or number + 1 in known:
            return True
        if number > known.end:
            return False
        self._evict(writer)
        return True

    def _evict(self, writer: int) -> None:
        """The highest interval of a writer gives way."""
        first, last = self.have[writer].drop_last()
        if writer in self.lost:
            self.lost[writer] = Intervals(self.lost[writer].without([(first, last)]))
        kept = self._of.pop(writer, deque())
        for identity in kept:
            if identity[1] >= first:
                self._remove(identity)
        if left := [identity for identity in kept if identity[1] < first]:
            self._of[writer] = deque(left)

    def _remove(self, identity: MessageId) -> None:
        entry = self._entries.pop(identity)
        self.bytes -= entry.size
        self.refused += 1
        if self._waiting.pop(identity, None) is None:
            del self._order[identity]
            self._evicted[identity] = None
            if len(self._evicted) > WAITING_MAX:
                del self._evicted[next(iter(self._evicted))]
        elif entry.parent is not None:
            self._children[entry.parent].pop(identity, None)
            if not self._children[entry.parent]:
                del self._children[entry.parent]

    def takes(self, writer: int) -> bool:
        """True if messages of a writer are kept: it is known, or one of the first ``WRITERS_MAX``."""
        return writer in self.have or len(self.have) < WRITERS_MAX

    def is_full(self, writer: int) -> bool:
        """True if a writer has as many intervals as are kept."""
        return writer in self.have and len(self.have[writer]) >= SPANS_MAX

    def wanted(self, offered: dict[int, Intervals]) -> dict[int, Intervals]:
        """Those of these identities that ``add`` would not refuse."""
        found: dict[int, Intervals] = {}
        for writer, numbers in offered.items():
            if writer in self.have:
                left = numbers.between(0, self.have[writer].end) if self.is_full(writer) else numbers
            else:
                left = numbers if self.takes(writer) else Intervals()
            if left:
                found[writer] = left
        return found

    def _deliver(self, ready: list[tuple[MessageId, bool]]) -> list[Delivered]:
        """Deliver these messages, then those that waited for them, and so on, without recursion: the chain may have any
        length."""
        found: list[Delivered] = []
        for identity, orphan in ready:  # the list grows during the loop
            entry = self._entries[identity]
            self._waiting.pop(identity, None)
            self._order[identity] = None
            self.orphans += orphan
            if identity in self._evicted:
                del self._evicted[identity]
            else:
                found.append(Delivered(entry, orphan))
            if entry.body is None or (self.identities_only and entry.by != self._person):
                self._lose_body(entry)
            for child in self._children.pop(identity, ()):
                if child in self._waiting:
                    ready.append((child, False))
        return found

    def _orphan(self, identities: Iterable[MessageId]) -> list[Delivered]:
        found: list[Delivered] = []
        for identity in identities:
            if identity in self._waiting:
                parent = self._entries[identity].parent
                if parent is not None and parent in self._children:
                    self._children[parent].pop(identity, None)
                    if not self._children[parent]:
                        del self._children[parent]
                found += self._deliver([(identity, True)])
        return found

    def tick(self, now: float) -> list[Delivered]:
        """Deliver messages that have waited long enough, without their parents."""
        if self._look_at is None or now < self._look_at:
            return []
        late = []
        for identity, since in self._waiting.items():
            if now - since < PATIENCE_S:
                break
            if self._entries[identity].parent not in self._waiting:
                late.append(identity)
        if not late and self._waiting and now - next(iter(self._waiting.values())) >= 2 * PATIENCE_S:
            late = [min(self._waiting)]  # these messages wait for each other
        found = self._orphan(late)
        self._look_at = now + LOOK_S if self._waiting else None
        return found

    def end_waiting(self) -> list[Delivered]:
        """Deliver all messages that wait, without their parents."""
        found: list[Delivered] = []
        while self._waiting:
            first = [one for one in self._waiting if self._entries[one].parent not in self._waiting]
            found += self._orphan(first or [min(self._waiting)])
        self._look_at = None
        return found

    @property
    def due_at(self) -> float | None:
        """The time when ``tick`` has something to do."""
        return self._look_at

    # Missing messages

    def missing(self) -> dict[int, Intervals]:
        """Identities that must exist: awaited parents, and gaps between messages of a writer."""
        found: dict[int, Intervals] = {}
        for parent in self._children:
            if parent not in self:
                add_identity(found, parent)
        for writer, numbers in self.have.items():
            if len(numbers) > 1 or numbers.start > 0:
                gaps = Intervals([(0, numbers.end - 1)]).without(numbers)
                found.setdefault(writer, Intervals()).update(gaps)
        return found

    @property
    def whole(self) -> bool:
        """True if ``missing`` finds nothing; quicker than that."""
        if any(len(numbers) > 1 or numbers.start > 0 for numbers in self.have.values()):
            return False
        return all(parent in self for parent in self._children)

    # Retention

    def _lose_body(self, entry: Entry) -> None:
        self._entries[entry.id] = msgspec.structs.replace(entry, body=None)
        self.bytes -= entry.size - self._entries[entry.id].size
        add_identity(self.lost, entry.id)

    def _forget_some(self) -> None:
        """Forget down to a part below the limits: the oldest messages of the writer that has most; waiting messages are
        kept."""
        messages = self.messages_max - self.messages_max // FORGET_PART
        size = self.bytes_max - self.bytes_max // FORGET_PART
        while len(self._entries) > messages or self.bytes > size:
            writer = max(self._of, key=lambda found: len(self._of[found]))
            some = max(len(self._of[writer]) // FORGET_PART, 1)
            forgotten = 0
            for _ in range(min(some, len(self._of[writer]))):
                identity = self._of[writer].popleft()
                if identity in self._waiting:
                    self._of[writer].append(identity)
                    continue
                forgotten += 1
                self._forget(identity)
            if not forgotten:
                return

    def _forget(self, identity: MessageId) -> None:
        entry = self._entries.pop(identity)
        self._order.pop(identity, None)
        self.bytes -= entry.size
        add_identity(self.lost, identity)
        if not self._of[identity[0]]:
            del self._of[identity[0]]
        self.forgotten += 1

    def forget_known(self, known: dict[int, Intervals]) -> None:
        """Identities that were forgotten in an earlier life: they are known, and their messages cannot be given."""
        for writer, numbers in known.items():
            self.have.setdefault(writer, Intervals()).update(numbers)
            self.lost.setdefault(writer, Intervals()).update(numbers)

    # Reading

    def entries(self) -> Iterator[Entry]:
        """Messages in the order of delivery."""
        return (self._entries[identity] for identity in self._order)

    def all_entries(self) -> Iterator[Entry]:
        """The same, and those that wait at the end."""
        return (self._entries[identity] for identity in (*self._order, *self._waiting))

    def identities(self) -> list[MessageId]:
        return sorted(self._entries)

    def tree(self) -> Node:
        """All delivered messages, below one root. It depends only on the messages."""
        nodes = {identity: Node(self._entries[identity]) for identity in self._order}
        root = Node(None)
        for identity, node in nodes.items():
            assert node.entry is not None
            parent = node.entry.parent
            above = nodes.get(parent) if parent is not None else None
            (above if above is not None and parent != identity else root).answers.append(node)
        seen: set[MessageId] = set()
        _reach(root.answers, seen)
        for identity in nodes:
            if identity in seen:
                continue
            least = min(_circle(identity, nodes))
            entry = nodes[least].entry
            assert entry is not None and entry.parent is not None
            nodes[entry.parent].answers.remove(nodes[least])
            root.answers.append(nodes[least])
            _reach([nodes[least]], seen)
        for node in (root, *nodes.values()):
            node.answers.sort(key=_place)
        return root

    def stats(self) -> dict[str, int]:
        return {
            "messages": len(self._entries),
            "bytes": self.bytes,
            "writers": len(self.have),
            "waiting": len(self._waiting),
            "forgotten": self.forgotten,
            "refused": self.refused,
            "conflicts": self.conflicts,
            "orphans": self.orphans,
        }

    def validate(self) -> None:
        assert self._entries.keys() == self._order.keys() | self._waiting.keys()
        assert not self._order.keys() & self._waiting.keys()
        assert self.bytes == sum(entry.size for entry in self._entries.values())
        assert len(self._waiting) <= WAITING_MAX and len(self.have) <= WRITERS_MAX
        assert sum(map(len, self._of.values())) == len(self._entries)
        assert all(identity in self for identity in self._entries)
        waiting = {child for children in self._children.values() for child in children}
        assert waiting == self._waiting.keys()
        for parent in self._children:
            assert parent not in self or parent in self._waiting, "it need not wait"
        for numbers in (*self.have.values(), *self.lost.values()):
            numbers.validate()


def _reach(nodes: list[Node], seen: set[MessageId]) -> None:
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node.entry is not None and node.entry.id not in seen:
            seen.add(node.entry.id)
            stack += node.answers


def _circle(start: MessageId, nodes: dict[MessageId, Node]) -> list[MessageId]:
    """The messages that answer each other in a circle, above one that hangs below no root."""
    passed: dict[MessageId, None] = {}
    at = start
    while at not in passed:
        passed[at] = None
        entry = nodes[at].entry
        assert entry is not None and entry.parent is not None
        at = entry.parent
    path = list(passed)
    return path[path.index(at) :]


def _place(node: Node) -> tuple[float, MessageId]:
    assert node.entry is not None
    return (node.entry.at, node.entry.id)
