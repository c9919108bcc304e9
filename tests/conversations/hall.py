"""Members that talk in one room, without a bus: words wait here until a test delivers, loses or repeats them."""

from random import Random
from typing import Any

from pluribus.conversations.history import History
from pluribus.conversations.joining import Joining
from pluribus.conversations.synchronising import Synchronising
from pluribus.conversations.words import Entry, decode_lobby, decode_room, encode


def entry(
    writer: int, number: int, parent: tuple[int, int] | None = None, body: str | None = "x", at: float = 1.0
) -> Entry:
    return Entry((writer, number), parent, f"p{writer}", at, body)


class Talker:
    """One member of the room, with its own lobby."""

    def __init__(self, me: int, **options: Any) -> None:
        self.me = me
        self.history = History(**options)
        self.sync = Synchronising(me, self.history, Random(me), piece_bytes=1_200)
        self.lobby = Joining(f"p{me}", Random(me), piece_bytes=1_200)
        self.delivered: list[tuple[int, int]] = []
        self.orphans: set[tuple[int, int]] = set()
        self.count = 0

    def take(self) -> None:
        for found in self.sync.delivered:
            self.delivered.append(found.entry.id)
            if found.orphan:
                self.orphans.add(found.entry.id)
        self.sync.delivered.clear()
        self.sync.fresh.clear()


class Hall:
    """Time, and the words that are on their way: (sender, receiver, encoded)."""

    def __init__(self, *talkers: Talker) -> None:
        self.now = 100.0
        self.talkers = {talker.me: talker for talker in talkers}
        self.apart: set[frozenset[int]] = set()
        self.waiting: list[tuple[int, int, str, bytes]] = []
        self.answered: list[tuple[int, int]] = []

    def reach(self, one: int, other: int) -> bool:
        return frozenset((one, other)) not in self.apart

    def flush(self) -> None:
        for talker in self.talkers.values():
            talker.take()
            for name, part in (("room", talker.sync), ("lobby", talker.lobby)):
                while part.out:
                    word = part.out.popleft()
                    self.answered += [found.id for found in getattr(word, "entries", []) if hasattr(word, "asker")]
                    data = encode(word)
                    for other in self.talkers:
                        if other != talker.me and self.reach(talker.me, other):
                            self.waiting.append((talker.me, other, name, data))

    def deliver(self, at: int = 0, *, keep: bool = False) -> None:
        sender, receiver, name, data = self.waiting[at] if keep else self.waiting.pop(at)
        talker = self.talkers.get(receiver)
        if talker is None or not self.reach(sender, receiver):
            return
        if name == "room":
            talker.sync.heard(sender, decode_room(data), self.now)
        else:
            talker.lobby.heard(sender, decode_lobby(data), self.now)
        self.flush()

    def run(self, seconds: float, step: float = 0.05) -> None:
        """Everything arrives, and time passes."""
        end = self.now + seconds
        while self.now < end:
            self.flush()
            while self.waiting:
                self.deliver()
            self.now += step
            self.tick()

    def tick(self) -> None:
        for talker in self.talkers.values():
            for part in (talker.sync, talker.lobby):
                if part.due_at <= self.now:
                    part.tick(self.now)
        self.flush()

    def say(self, me: int, parent: tuple[int, int] | None = None) -> tuple[int, int]:
        talker = self.talkers[me]
        said = entry(me, talker.count, parent, at=self.now)
        talker.count += 1
        talker.sync.say(said, self.now)
        self.flush()
        return said.id
