"""Words that are well formed and make no sense, in any order: no invariant breaks, and what is sent can be read."""

from random import Random

import pytest

from pluribus.conversations import history as history_of
from pluribus.conversations.joining import JOINED
from pluribus.conversations.words import (
    COUNTER_MAX,
    NUMBER_MAX,
    POSITION_MAX,
    Advertise,
    Answer,
    Entry,
    GroupInfo,
    Groups,
    Join,
    Leave,
    LobbyWord,
    Request,
    RoomWord,
    Row,
    Said,
    Writing,
    decode_lobby,
    decode_room,
    encode,
)
from tests.conversations.hall import Talker, entry

OTHERS = (2, 3, 666)
TIMES = (0.0, 1.0, 1e11, 1e13, -1.0, float("nan"), float("inf"))


class Liar:
    """Says anything that can be decoded, of few names and numbers, so that they meet."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def number(self) -> int:
        random = self.random
        return random.choice(
            (0, 1, 2, 3, 7, random.randrange(40), random.randrange(1 << 20), NUMBER_MAX - 1, NUMBER_MAX)
        )

    def place(self) -> int:
        random = self.random
        return random.choice(
            (0, 1, 2, 5, random.randrange(60), random.randrange(3_000), POSITION_MAX - 1, POSITION_MAX)
        )

    def identity(self) -> tuple[int, int]:
        return self.random.choice((1, 2, 3, 7, 666, self.number())), self.place()

    def entries(self) -> list[Entry]:
        return [
            Entry(
                self.identity(),
                self.random.choice((None, self.identity())),
                self.random.choice(("p1", "p2")),
                self.random.choice(TIMES),
                self.random.choice((None, "", "x", "y" * 500)),
            )
            for _ in range(self.random.randrange(5))
        ]

    def known(self) -> list[tuple[int, list[tuple[int, int]]]]:
        some = self.random.randrange
        return [(self.number(), [(self.place(), self.place()) for _ in range(some(4))]) for _ in range(some(4))]

    def of_a_room(self) -> RoomWord:
        number, place = self.number, self.place
        match self.random.randrange(4):
            case 0:
                return Said(self.entries())
            case 1:
                return Request(number(), number(), number(), number(), self.known(), self.known(), place(), place())
            case 2:
                return Answer(number(), number(), number(), self.entries())
            case _:
                return Writing(self.random.random() < 0.5)

    def of_the_lobby(self) -> LobbyWord:
        choice = self.random.choice
        gid, person, counter = (
            choice("GHIJK"),
            choice(("p1", "p2", "x")),
            choice((0, 1, 5, COUNTER_MAX - 1, COUNTER_MAX)),
        )
        match self.random.randrange(4):
            case 0:
                return Advertise(person)
            case 1:
                rows = [Row(person, counter, choice((True, False)))]
                info = GroupInfo(gid, choice(("", "about")), choice(TIMES), rows, choice((0, 1, 2, 9)))
                return Groups([info, GroupInfo(choice("GHIJK"), "", choice(TIMES))])
            case 2:
                return Join(gid, person, counter)
            case _:
                return Leave(gid, person, counter)


@pytest.mark.parametrize("light", [False, True], ids=["full", "light"])
@pytest.mark.parametrize("seed", range(20))
def test_no_words_break_a_member(monkeypatch, seed, light):
    random = Random(seed)
    monkeypatch.setattr(history_of, "SPANS_MAX", random.choice((3, 8, 1_024)))
    liar = Liar(random)
    member = Talker(1, identities_only=light, person="p1", messages_max=random.choice((5, 40, 1_000_000)))
    now = 0.0
    member.sync.begin(now)
    member.lobby.enter(now)
    for _ in range(120):
        now += random.random() * random.choice((0.01, 1.0, 30.0))
        what = random.random()
        if what < 0.45:
            member.sync.heard(random.choice(OTHERS), decode_room(encode(liar.of_a_room())), now)
        elif what < 0.85:
            member.lobby.heard(random.choice(OTHERS), decode_lobby(encode(liar.of_the_lobby())), now)
        elif what < 0.92:
            member.sync.say(entry(1, member.count, random.choice((None, liar.identity()))), now)
            member.count += 1
        else:
            decide(member, random.choice("GHIJK"), random, now)
        for part, decode in ((member.sync, decode_room), (member.lobby, decode_lobby)):
            if part.due_at <= now:
                part.tick(now)
            while part.out:
                decode(encode(part.out.popleft()))
            part.validate()
        member.take()
        assert len(list(member.history.tree().walk())) == len(member.history) - member.history.waiting
    assert len(member.delivered) == len(set(member.delivered)), "nothing twice"


def decide(member: Talker, gid: str, random: Random, now: float) -> None:
    """Its person creates, leaves or refuses a conversation."""
    known = member.lobby.groups.get(gid)
    if known is None or random.random() < 0.4:
        member.lobby.create(gid, "", 1.0, now)
    elif known.standing == JOINED:
        member.lobby.leave(gid, now)
    else:
        member.lobby.refuse(gid)
