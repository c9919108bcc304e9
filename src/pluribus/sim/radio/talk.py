"""Conversations on the air: members talk over any of the multicast protocols, and repair what those lose.

Theory of operation
-------------------
None of the surveyed protocols promises that a message arrives. Here the
protocols of conversations (``pluribus.conversations``: joining, member synchronisation, the history that delivers
answers after what they answer) run above them, unchanged: their words are encoded as on the wire, go as messages of a
multicast protocol, and come or do not come. The first member creates a room, the others are invited and join it; all
say things and answer each other. What the multicast lost is asked for and answered, by any node that has it, and
summaries are said for ever: so in the end every member holds the same tree, whatever lies below, as long as the nodes
meet again.

A *talker* is one member. It does what the carrier of a room does on a bus: it sends one word after the other, no more
than one in ``WORD_S``, since a word floods a whole network; and lets the protocols tick only when all were sent, so
what waits is bounded. Nobody tells of newcomers here; a node that is heard for the first time, or after ``AWAY_S``, is
one.

What happened is checked as in the campaigns of conversations: same tree, answers in order, everything as it was said,
nothing lost.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from ...conversations.history import Delivered, History
from ...conversations.joining import Joining
from ...conversations.synchronising import Synchronising
from ...conversations.words import Entry, LobbyWord, RoomWord, Said, decode_lobby, decode_room, encode
from ..checkers.conversations import answered_in_order, as_said, nothing_lost, packed, same_tree, shown
from ..machinery.history import Happening
from ..machinery.history import History as Log
from .node import Data
from .run import Setting, World

ROOM = "delhi"
LOBBY_MARK, ROOM_MARK = b"L", b"R"
WORD_S = 0.05
AWAY_S = 30.0
PIECE_BYTES = 1_000
LOOK_S = 1.0
CALM_S_MAX = 900.0
RECENT = 30


class Talked(msgspec.Struct, frozen=True):
    """What came of one talk."""

    said: int
    wanted: int
    by_multicast: int
    """Of the wanted deliveries, those that the first sending brought."""
    same: bool
    """Every member shows the same tree, with everything that was said."""
    after_s: float
    """Until that was so, from the last message on."""
    checks: int
    requests: int
    answered: int
    """Messages that were sent a second time, in answers."""
    transmissions: int
    digest: str
    """Of the tree that the first member shows."""

    @property
    def ratio(self) -> float:
        """What the multicast alone delivered."""
        return self.by_multicast / max(self.wanted, 1)


class Talker:
    """One member with the protocols of conversations."""

    def __init__(self, world: World, me: int, log: Log) -> None:
        self.me = me
        self.person = f"person {me}"
        self.random = Random(f"talker {world.setting.seed} {me}")
        self.joining = Joining(self.person, self.random, piece_bytes=PIECE_BYTES)
        self.history = History(person=self.person)
        self.sync = Synchronising(me, self.history, self.random, piece_bytes=PIECE_BYTES)
        self.joined = False
        self.by_multicast = 0
        self.malformed = 0
        self._world = world
        self._log = log
        self._frames = 0
        self.said = 0
        self._free_at = 0.0
        """No word before that."""
        self._heard_at: dict[int, float] = {}
        self._next = -1.0
        self._recent: list[tuple[int, int]] = []

    @property
    def now(self) -> float:
        return self._world.air.now

    # What the person does

    def enter(self, *, create: bool) -> None:
        self.joining.enter(self.now)
        if create:
            self.joining.create(ROOM, "Did you visit Delhi?", self.now, self.now)
            self._open()
        self.wake()

    def _open(self) -> None:
        self.joined = True
        self._log.add(Happening(self.now, self.me, "opened", ROOM, body=packed([])))
        self.sync.begin(self.now)

    def say(self) -> None:
        """Something new, or more often an answer to something recent."""
        parent = self.random.choice(self._recent) if self._recent and self.random.random() < 0.7 else None
        text = f"{self.person} says {self.said}"
        entry = Entry((self.me, self.said), parent, self.person, self.now, text)
        self.said += 1
        self._log.add(Happening(self.now, self.me, "send", ROOM, entry.id, text.encode(), parent=parent))
        self.sync.say(entry, self.now)
        self._settle()
        self.wake()

    # What comes

    def heard(self, data: Data) -> None:
        try:
            self._decode(data.source, data.body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.malformed += 1
        self._settle()
        self.wake()

    def _decode(self, sender: int, body: bytes) -> None:
        new = self.now - self._heard_at.get(sender, -AWAY_S) >= AWAY_S
        self._heard_at[sender] = self.now
        if new:
            self.joining.newcomer(self.now)
            if self.joined:
                self.sync.newcomer(self.now)
        if body[:1] == LOBBY_MARK:
            self.joining.heard(sender, decode_lobby(body[1:]), self.now)
        elif self.joined:
            word = decode_room(body[1:])
            if isinstance(word, Said):
                self.by_multicast += sum(entry.id not in self.history for entry in word.entries)
            self.sync.heard(sender, word, self.now)

    def _settle(self) -> None:
        invitations, self.joining.invitations = self.joining.invitations, []
        for info in invitations:
            if info.gid == ROOM and not self.joined:
                self.joining.join(ROOM, self.now)
                self._open()
        delivered, self.sync.delivered = self.sync.delivered, []
        self.sync.fresh.clear()
        for found in delivered:
            self._note(found)

    def _note(self, found: Delivered) -> None:
        entry = found.entry
        self._recent = [*self._recent[-RECENT + 1 :], entry.id]
        body = (entry.body or "").encode()
        happening = Happening(
            *(self.now, self.me, "deliver", ROOM, entry.id, body), parent=entry.parent, orphan=found.orphan
        )
        self._log.add(happening)

    # Words and time

    def wake(self) -> None:
        """Send or tick as soon as it is due."""
        due_at = self.joining.due_at
        if self.joined:
            due_at = min(due_at, self.sync.due_at)
        if self.joining.out or self.sync.out:
            due_at = self.now
        due_at = max(due_at, self._free_at, self.now + 0.001)
        if self._next < self.now or due_at < self._next:
            self._next = due_at
            self._world.air.later(due_at - self.now, self._drive, due_at)

    def _drive(self, at: float) -> None:
        if at != self._next:
            return  # it was woken for an earlier time since
        self._next = -1.0
        if self.joining.out:
            self._send(LOBBY_MARK, self.joining.out.popleft())
        elif self.sync.out:
            self._send(ROOM_MARK, self.sync.out.popleft())
        else:
            self.joining.tick(self.now)
            if self.joined:
                self.sync.tick(self.now)
            self._settle()
        self.wake()

    def _send(self, mark: bytes, word: LobbyWord | RoomWord) -> None:
        body = mark + encode(word)
        number, self._frames = self._frames, self._frames + 1
        self._free_at = self.now + WORD_S * (0.5 + self.random.random())
        self._world.nodes[self.me].send(Data(self.me, number, len(body), body))

    def shown(self) -> list[tuple[int, int]]:
        """The tree, as identities from top to bottom."""
        return [entry.id for _, entry in self.history.tree().walk()]


class Hall:
    """A world in which members talk."""

    def __init__(self, protocol: str, setting: Setting) -> None:
        self.world = World(protocol, setting)
        self.log = Log()
        self.talkers = {member: Talker(self.world, member, self.log) for member in sorted(self.world.members)}
        for node in self.world.nodes:
            node.hand_to(self._deliver)
        for place, talker in enumerate(self.talkers.values()):
            self.world.air.later(1.0 + talker.random.random(), self._enter, talker, place == 0)

    def _enter(self, talker: Talker, create: bool) -> None:
        talker.enter(create=create)

    def _deliver(self, member: int, data: Data) -> None:
        self.talkers[member].heard(data)

    def converse(self) -> None:
        """Members say things, one after the other by chance, until the calm begins."""
        setting = self.world.setting
        random = Random(f"talk {setting.seed}")
        at = setting.warm_s
        while at < setting.seconds - setting.calm_s:
            talker = self.talkers[random.choice(sorted(self.talkers))]
            self.world.air.later(at, self._say, talker)
            at += (0.5 + random.random()) / setting.rate

    def _say(self, talker: Talker) -> None:
        if talker.joined:
            talker.say()

    @property
    def same(self) -> bool:
        said = sum(talker.said for talker in self.talkers.values())
        return all(talker.joined and len(talker.history) == said for talker in self.talkers.values())

    def until_same(self, progress: Callable[[], None] = lambda: None) -> float:
        """Let time pass until every member has everything; the seconds that took, or ``CALM_S_MAX``."""
        air = self.world.air
        began = air.now
        while not self.same and air.now - began < CALM_S_MAX:
            air.run(air.now + LOOK_S)
            progress()
        return air.now - began

    def check(self) -> int:
        """The promises of conversations. ``Violation`` if one is broken; how much was looked at."""
        for member, talker in self.talkers.items():
            talker.history.validate()
            talker.sync.validate()
            talker.joining.validate()
            for found in shown(self.world.air.now, member, ROOM, talker.history.tree()):
                self.log.add(found)
        return sum(checker(self.log) for checker in (same_tree, answered_in_order, as_said, nothing_lost))


def talk(protocol: str, setting: Setting) -> Talked:
    """A whole talk over this protocol. The same setting gives the same talk."""
    hall = Hall(protocol, setting)
    hall.converse()
    hall.world.air.run(setting.seconds - setting.calm_s)
    after_s = hall.until_same()
    talkers = list(hall.talkers.values())
    said = sum(talker.said for talker in talkers)
    same = hall.same
    checks = hall.check() if same else 0
    return Talked(
        said=said,
        wanted=said * (len(talkers) - 1),
        by_multicast=sum(talker.by_multicast for talker in talkers),
        same=same and len({tuple(talker.shown()) for talker in talkers}) == 1,
        after_s=after_s,
        checks=checks,
        requests=sum(talker.sync.requests for talker in talkers),
        answered=sum(talker.sync.answered for talker in talkers),
        transmissions=hall.world.air.counted.transmissions,
        digest=packed(talkers[0].shown()).hex(),
    )
