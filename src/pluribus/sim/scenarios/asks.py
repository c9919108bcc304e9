"""Asks: members ask their group and call its objects while everything goes wrong."""

from __future__ import annotations

import asyncio
from typing import Any

from ...core.errors import (
    AnswersLate,
    Closed,
    Excluded,
    NoMembers,
    NotPrimary,
    Overflow,
    PluribusError,
    Unanswered,
    Uncertain,
)
from ...core.frame import Frame, Message
from ...core.ids import number_of
from ...group.asking import Answer, Question
from ...group.calls import exposed
from ...runtime.bus import VIEWS, Bus
from ...runtime.group.group import Group
from ...stack.events import Event, Members
from ...wire.bodies import BYTES, decode_bodies
from ...wire.questions import CALL, GOOD, QUESTION, Answered, unwrapped, words_of, wrapped
from ..checkers.asks import (
    ANSWERS,
    CLOSED,
    LATE,
    NO_MEMBERS,
    UNANSWERED,
    answers_are_given,
    asks_are_answered,
    asks_end,
    asks_reach,
    stable_is_everywhere,
)
from ..checkers.orders import among
from ..machinery.chaos import STRIKES, ordeal
from ..machinery.history import Happening, History
from ..machinery.world import World
from . import Scenario

NAME = "questions"
PROMISES = ("fifo", "fifo", "causal", "semantic", "total", "total safe")
TORMENT_S = 20.0
CALM_S = 30.0
LAST_ROUNDS = 25
UNDER_WAY_MAX = 5


class Player:
    """One member: asks, calls, answers late, twice or with an error, sometimes leaves the group and joins it again."""

    def __init__(self, world: World, history: History, bus: Bus, promises: str) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.calm = False
        self._promises = promises
        self._group: Group | None = None
        self._number = number_of(NAME)
        self._count = 0
        self._asks: set[asyncio.Task[None]] = set()
        bus._dispatch.observe = self._observe
        self.task = asyncio.create_task(self._live())

    def _observe(self, what: Frame | Event) -> None:
        if isinstance(what, Members) and what.group == self._number:
            self._note("view", id=(what.stamp, 0), members=what.members, promises=what.promises)
        elif isinstance(what, Frame) and what.group == self._number and what.count:
            if what.kind in (QUESTION, CALL):
                for word in words_of(what):
                    self._note("heard", unwrapped(word.body if what.kind == QUESTION else word.args[0]))
            elif what.kind == BYTES:
                for body in decode_bodies(BYTES, what.bodies, what.count):
                    self._note("deliver", body)

    def _note(self, what: str, body: bytes = b"", **more: Any) -> None:
        self.history.add(Happening(self.world.now, self.bus.me, what, NAME, body=body, **more))
        self.world.note(what, self.bus.name, body)

    async def _live(self) -> None:
        random = self.world.random
        try:
            await self._join()
            while not self.bus.closed and not self.calm:
                await asyncio.sleep(random.random() * 0.2)
                chance = random.random()
                if chance < 0.02 and self._group is not None:
                    await self._group.close()
                    await self._join()
                elif len(self._asks) < UNDER_WAY_MAX:
                    how = random.choice(("all", "majority", "one", 2))
                    task = asyncio.create_task(self._send_some() if chance < 0.3 else self.ask(how))
                    self._asks.add(task)
                    task.add_done_callback(self._asks.discard)
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _join(self) -> None:
        order, _, safe = self._promises.partition(" ")
        group = self._group = await self.bus.group(NAME, order=order, safe=bool(safe))
        group.serve(self)
        asyncio.create_task(self._read(group))  # noqa: RUF006 - it ends with the group

    async def _read(self, group: Group) -> None:
        while not group.closed:
            try:
                async for message in group:
                    if message.asks:
                        asyncio.create_task(self._answer(group, message))  # noqa: RUF006 - it ends by itself
            except Excluded:
                pass  # there are questions that this member never saw

    async def _answer(self, group: Group, message: Message) -> None:
        assert isinstance(message, Question)
        random = self.world.random
        try:
            body = await self.echo(message.body)
            await message.reply(body)
            if random.random() < 0.1:
                await group._asker.give(message.sender, Answered(message.number, GOOD, wrapped(-1)))
        except ValueError as error:
            await group._asker.fail(message, error)
        except PluribusError:
            if not group.closed:
                raise

    @exposed
    async def echo(self, body: bytes) -> int:
        """Answer with a number, or raise it."""
        random = self.world.random
        if random.random() < 0.5:
            await asyncio.sleep(random.random() * 0.3)
        if random.random() < 0.01 and not self.calm:
            await asyncio.sleep(60)
        self._count += 1
        number = self._count
        self._note("reply", body, id=(self.bus.me, number))
        if random.random() < 0.05 and not self.calm:
            raise ValueError(number)
        return number

    async def _send_some(self) -> None:
        await asyncio.gather(*[self._send() for _ in range(self.world.random.randrange(1, 12))])

    async def _send(self) -> None:
        """Send, and note when all members have the message."""
        group = self._group
        if group is None or group.closed:
            return
        self._count += 1
        body = f"{self.bus.me}/{self._count}/".encode() * self.world.random.randrange(1, 50)
        self._note("send", body)
        try:
            await group.send(body, wait="stable", timeout=5)
        except (Closed, Overflow, NotPrimary, Uncertain):
            self._note("uncertain", body)
        else:
            self._note("stable", body)

    async def ask(self, replies: str | int) -> None:
        group = self._group
        if group is None or group.closed:
            return
        random = self.world.random
        self._count += 1
        body = f"{self.bus.me}/{self._count}".encode()
        self._note("ask", body, promises={"one": "1"}.get(str(replies), str(replies)))
        timeout = 20.0 if self.calm else 1 + 5 * random.random()
        how, answers = ANSWERS, list[Answer]()
        try:
            if random.random() < 0.4:
                answers = await group.call("echo", body, replies=replies, timeout=timeout)
            else:
                answers = await group.ask(body, replies=replies, timeout=timeout)
        except (NoMembers, Unanswered) as error:
            kinds = {NoMembers: NO_MEMBERS, AnswersLate: LATE, Unanswered: UNANSWERED}
            how, answers = kinds[type(error)], list(error.answers)
        except (Closed, Overflow, NotPrimary, Uncertain):
            how = CLOSED  # or not sent, or perhaps
        for answer in answers:
            number = answer.body if answer.error is None else int(str(answer.error).split()[1])
            self._note("answer", body, id=(answer.sender, number), orphan=answer.error is not None)
        self._note("over", body, promises=how)


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}
    promises = world.random.choice(PROMISES)

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, promises)

    await ordeal(world, players, begin, TORMENT_S, CALM_S, "to join or to send")
    everybody = tuple(sorted(player.bus.me for player in players.values()))
    history.add(Happening(world.now, 0, "settled", members=everybody))
    await asyncio.gather(*[player.ask("all") for player in players.values() for _ in range(LAST_ROUNDS)])
    world.validate()


ASKS = Scenario(
    "asks",
    "questions to a group and calls of its objects under every fault",
    VIEWS,
    play,
    {
        "answers_are_given": answers_are_given,
        "asks_end": asks_end,
        "asks_are_answered": asks_are_answered,
        "asks_reach": asks_reach,
        "stable_is_everywhere": among(stable_is_everywhere, "fifo"),
    },
    STRIKES,
)
