"""Objects: messages, questions, broadcasts, handles and queued calls between objects while everything goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ...core.errors import Closed, PluribusError, RemoteError, Uncertain, Violation
from ...group.calls import exposed
from ...objects import Kqml, Word, handles, kqml
from ...runtime.bus import VIEWS, Bus
from ...runtime.styles.objects.shadows import Shadow
from ..checkers.objects import (
    ANSWERED,
    FAILED,
    UNCERTAIN,
    all_handle_it,
    answers_are_the_askers,
    asks_end,
    expected,
    guards_come_first,
    one_handles_it,
    queued_calls_are_done_once,
)
from ..machinery.chaos import EVERY_FAULT, STRIKES, flip, ordeal
from ..machinery.history import Happening, History
from ..machinery.network import Medium
from ..machinery.world import World
from . import Scenario

ALIAS, FLOATER, TARGET = "workers", "floater", "target"
TORMENT_S = 20.0
CALM_S = 90.0
LAST_ROUNDS = 8
UNDER_WAY_MAX = 6
MEDIA = (Medium(), Medium(broadcasts=False))
FAULTS = tuple(fault for fault in EVERY_FAULT if fault is not flip)
"""All faults but damage on disk: queued calls refuse a damaged file, and cannot go on without it."""


class Interface:
    async def shine(self, body: str) -> str:
        raise NotImplementedError


class Talker:
    """An object that echoes, late or with an error, and records the messages that it handled."""

    def __init__(self, player: Player, role: str) -> None:
        self.player = player
        self.role = role
        self.id = ""

    @handles("tell", "ask-one")
    async def take(self, message: Kqml) -> str:
        body = str(message.content).encode()
        self.player.note("handled", body, group=self.id, promises=self.role)
        return await self.player.echo(body)

    async def shine(self, body: str) -> str:
        self.player.note("handled", body.encode(), group=self.id, promises=self.role)
        return await self.player.echo(body.encode())

    @exposed
    async def work(self, body: str) -> str:
        """A queued call."""
        self.player.note("done", body.encode())
        await self.player.dawdle()
        return expected(body.encode())


class Guard:
    """Looks at messages to the target before it."""

    def __init__(self, player: Player) -> None:
        self.player = player

    async def say(self, message: Kqml) -> None:
        await self.player.dawdle()
        self.player.note("guarded", str(message.content).encode())


class Asker:
    """The sender of questions; several askers use the same tokens."""

    async def say(self, message: Kqml) -> None: ...


class Player:
    """One process: two workers, a floater, a guarded target, two askers, and a queue on its disk."""

    def __init__(self, world: World, history: History, bus: Bus, number: int) -> None:
        self.world = world
        self.history = history
        self.bus = bus
        self.calm = False
        self.talkers: list[Talker] = []
        self._number = number
        self._count = 0
        self._askers: list[Shadow] = []
        self._tokens: dict[Shadow, int] = {}
        self._floating: Shadow | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self.task = asyncio.create_task(self._live())

    def note(self, what: str, body: bytes = b"", **more: Any) -> None:
        self.history.add(Happening(self.world.now, self.bus.me, what, body=body, **more))
        self.world.note(what, self.bus.name, body)

    async def dawdle(self) -> None:
        random = self.world.random
        if random.random() < 0.5:
            await asyncio.sleep(random.random() * 0.3)
        if random.random() < 0.002 and not self.calm:
            await asyncio.sleep(60)

    async def echo(self, body: bytes) -> str:
        await self.dawdle()
        if self.world.random.random() < 0.05 and not self.calm:
            raise LookupError(body.decode())
        return expected(body)

    async def _live(self) -> None:
        try:
            await self._open()
            random = self.world.random
            while not self.bus.closed and not self.calm:
                await asyncio.sleep(random.random() * 0.2)
                if len(self._under_way) < UNDER_WAY_MAX:
                    self._begin(self._something(random.random()))
            await asyncio.gather(*self._under_way)
        except PluribusError:
            if not self.bus.closed:
                raise

    async def _open(self) -> None:
        directory = self.bus.directory
        await self.bus.queued_calls.open_in(self.world.hosts[self._number].disk)
        for role in ("worker", "worker", "floater", "target"):
            talker = Talker(self, role)
            aliases = {"worker": [ALIAS], "target": [TARGET]}.get(role, [])
            shadow = await directory.add(talker, *aliases, exports=[Interface] if role == "worker" else [])
            talker.id = shadow.id
            self.talkers.append(talker)
            if role == "floater":
                self._floating = shadow
        await directory.add_alias(f"site-{self._number}", self.talkers[0])
        guard = Guard(self)
        await directory.add(guard)
        directory.preempt(self.talkers[-1], guard, "before")
        self._askers = [await directory.add(Asker()) for _ in range(2)]
        for call in self.bus.queued_calls.pending():
            self._begin(self._await_answer(call.number, call.key.encode()))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._attempted(work))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _attempted(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except PluribusError as error:  # what that means is noted where it matters
            if isinstance(error, Violation):
                raise

    def new_body(self) -> bytes:
        self._count += 1
        return f"{int(self.bus.me)}/{self._count}".encode()

    async def _something(self, chance: float) -> None:
        if chance < 0.25:
            await self.tell(ALIAS)
        elif chance < 0.6:
            await self.ask(self.world.random.choice((ALIAS, ALIAS, FLOATER, TARGET)))
        elif chance < 0.7:
            await self.broadcast()
        elif chance < 0.75:
            await self.shine()
        elif chance < 0.8:
            await self._float()
        else:
            await self.call()

    async def tell(self, alias: str) -> None:
        body = self.new_body()
        self.note("told", body)
        await self.bus.communicator.send(alias, kqml("tell", content=body.decode()), sender=self._askers[0])

    async def broadcast(self) -> None:
        body = self.new_body()
        self.note("broadcast", body)
        await self.bus.communicator.broadcast(ALIAS, kqml("tell", content=body.decode()), sender=self._askers[0])

    async def shine(self) -> None:
        """All through an omni handle."""
        body = self.new_body()
        self.note("broadcast", body)
        await self.bus.omni(Interface, results="all", timeout=3).shine(body.decode())

    async def ask(self, alias: str) -> None:
        random, body = self.world.random, self.new_body()
        asker = random.choice(self._askers)
        self._tokens[asker] = self._tokens.get(asker, 0) + 1
        parameters = {"reply_with": Word(f"t{self._tokens[asker]}")} if random.random() < 0.5 else {}
        message = kqml("ask-one", content=body.decode(), **parameters)
        self.note("asked", body, promises=alias)
        timeout = 20.0 if self.calm else 1 + 5 * random.random()
        how = FAILED
        try:
            answer = await self.bus.communicator.ask(alias, message, sender=asker, timeout=timeout)
            self.note("answer", body, promises=str(answer.content))
            how = ANSWERED
        finally:
            self.note("over", body, promises=how)

    async def call(self) -> None:
        body = self.new_body()
        site = self.world.random.randrange(len(self.world.hosts))
        shadow = self.bus.directory.shadow(f"site-{site}")
        self.note("called", body)
        await self._result(body, shadow.call("work", body.decode(), queued=True, key=body.decode()))

    async def _await_answer(self, number: int, body: bytes) -> None:
        await self._result(body, self.bus.queued_calls.answer(number))

    async def _result(self, body: bytes, calling: Coroutine[Any, Any, Any]) -> None:
        try:
            self.note("result", body, promises=str(await calling))
        except Uncertain:
            self.note("result", body, promises=UNCERTAIN)
        except (Closed, RemoteError):
            if not self.bus.closed:
                raise Violation(f"the queued call {body!r} failed") from None

    async def _float(self) -> None:
        """Add and remove an alias, again and again."""
        if self._floating is not None:
            change = self.world.random.choice((self.bus.directory.add_alias, self.bus.directory.delete_alias))
            await change(FLOATER, self._floating)


async def play(world: World, history: History) -> None:
    players: dict[int, Player] = {}

    async def begin(number: int, bus: Bus) -> None:
        players[number] = Player(world, history, bus, number)

    await ordeal(world, players, begin, TORMENT_S, CALM_S, "for answers or queued calls", FAULTS)
    for player in players.values():
        if player.bus.queued_calls.pending():
            raise Violation(f"{player.bus.me!r} still has {len(player.bus.queued_calls.pending())} queued calls")
    everybody = tuple(sorted(int(player.bus.me) for player in players.values()))
    workers = " ".join(talker.id for player in players.values() for talker in player.talkers if talker.role == "worker")
    history.add(Happening(world.now, 0, "settled", members=everybody, promises=workers))
    for _ in range(LAST_ROUNDS):
        work = [(player.tell(ALIAS), player.ask(ALIAS), player.ask(TARGET)) for player in players.values()]
        await asyncio.gather(*[one for some in work for one in some])
        await asyncio.gather(*[player.broadcast() for player in players.values()])
        await asyncio.gather(*[player.call() for player in players.values()])
    await asyncio.sleep(10)
    world.validate()


OBJECTS = Scenario(
    "objects",
    "objects that talk, are called and queue calls under every fault",
    VIEWS,
    play,
    {
        "one_handles_it": one_handles_it,
        "all_handle_it": all_handle_it,
        "answers_are_the_askers": answers_are_the_askers,
        "asks_end": asks_end,
        "guards_come_first": guards_come_first,
        "queued_calls_are_done_once": queued_calls_are_done_once,
    },
    STRIKES,
    media=MEDIA,
)
