"""A client: a program that is no member, and speaks to one. What ``connect("client://…")`` gives.

It has the faces of a bus (``runtime/styles``), and can do everything that a member can do, except what needs the
program itself as a member. Each style has a part for clients, which asks the client's member through one line. If that
member goes away, the client goes on with another host of the URL; each style says what becomes of requests under way.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import cached_property
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from ...core.errors import BadInput, Closed, PluribusError
from ...core.ids import MemberId, MessageId, checked_name
from ...core.limits import DRAIN_S
from ...core.secret import Secret
from ...core.url import BusUrl
from ...group.asking import Answers, Replies
from ...group.requests import AskGroup, SendGroup
from ...group.stalled import WAIT
from ...group.state import State
from ...wire.bodies import encode_body
from ..group.asking import ANSWER_S
from ..group.objects import Objects
from ..group.outsiders import answers_of
from ..group.secret import Given
from ..loop.clock import LoopClock
from ..loop.draining import each_drained
from ..styles import Faces, style_at
from ..styles.style import S, StylesInUse
from .group import ClientGroup, ClientGroups
from .login import Credentials
from .socket_line import SocketLine

if TYPE_CHECKING:
    from ..keepers.durable_replica import DurableReplica


class NoEngine:
    """Answers styles that ask about the engine: a client has none, only a line to a member."""

    name = "client"
    broadcasts = False
    address = ("client", 0)


class ClientBus(Faces):
    """A bus as a client has it. ``me`` is a number of the client's own, not a member's."""

    eager = True
    store = None
    orders = ("fifo", "none", "causal", "total", "semantic")
    """The member refuses orders that its stack does not offer, when a group is joined."""

    def __init__(self, url: BusUrl, name: str, secret: Secret | None, login: Credentials | None = None) -> None:
        self.url = url
        self.name = name
        self._chance = random.SystemRandom()
        self.me = MemberId(self.new_number())
        self.line = SocketLine(url, name, secret, login)
        self._wall: Callable[[], float] = time
        self._styles = StylesInUse()
        self._replicas: dict[str, DurableReplica[Any]] = {}
        self._closing = self.closed = False
        self._begin()
        self._random = self._chance
        self._engine = NoEngine()
        self._provided: set[str] = set()

    def new_number(self) -> int:
        """A random number, which nobody else is likely to draw."""
        return self._chance.getrandbits(62) + 1

    def __getattr__(self, name: str) -> Any:
        """An attribute that only members have raises an error that says so."""
        from ..bus import Bus

        if name.startswith("_") or not hasattr(Bus, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise AttributeError(self._for_members(f"bus.{name}"))

    def _for_members(self, what: str) -> str:
        return (
            f"{what} is for members, and client:// is none: connect to the bus itself, for instance "
            f"multicast://{self.url.bus}"
        )

    def style(self, kind: type[S]) -> S:
        """What a style has open on this bus, for styles of your own (``docs/design/styles.md``)."""
        return self._style(kind)

    def _style(self, kind: type[S]) -> S:
        """The client's part of a style. Its type is that of the member's part, because both have the same calls."""
        self._check_open()
        if not kind.on_clients:
            raise BadInput(self._for_members(kind.__module__.rpartition(".")[0].rpartition(".")[2]))
        return cast(S, self._styles.get(style_at(kind.on_clients), self))

    @cached_property
    def clock(self) -> LoopClock:
        """The time of this program's loop."""
        return LoopClock(asyncio.get_running_loop())

    def _now(self) -> float:
        return self.clock.now()

    async def open(self) -> None:
        """Connect; ``Unreachable`` or ``Refused`` at once, if none of the hosts can be used."""
        await self.line.connected()

    # Groups and replicas.

    async def group(
        self,
        name: str,
        *,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        state: State | None = None,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> ClientGroup:
        """Join a group as a guest: the client's member runs a member of the bus for the client, with the client's name.
        See ``Bus.group``; ``state``, ``stalled`` and ``key`` need the program itself in the group, and are refused.
        When the connection breaks the guest is gone, and reading ends with ``Closed``."""
        self._check_open()
        for option, given in (("state", state is not None), ("stalled", stalled != WAIT), ("key", key is not None)):
            if given:
                raise BadInput(self._for_members(f"{option}= of a group"))
        groups = self._styles.get(ClientGroups, self)
        return await groups.join(checked_name(name, "the group"), order=order, safe=safe, own=own, open=open)

    async def send(self, name: str, body: Any, *, timeout: float | None = None) -> MessageId:
        """Send to an open group, through the client's member; returns when every member of the group has it. See
        ``Bus.send``. ``Uncertain`` if the connection broke meanwhile."""
        self._check_open()
        kind, encoded = encode_body(body)
        found: MessageId = await self.line.ask_once(SendGroup(checked_name(name, "the group"), kind, encoded, timeout))
        return found

    async def objects(
        self,
        name: str,
        interface: type | None = None,
        *,
        serve: object | None = None,
        one_by_one: bool = True,
        timeout: float | None = ANSWER_S,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        state: State | None = None,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> Objects:
        """Call the objects that members serve in a group, as its guest. See ``Bus.objects``; to serve one is for
        members."""
        if serve is not None:
            raise BadInput(self._for_members("serve= of an object group"))
        group = await self.group(
            name, order=order, safe=safe, own=own, state=state, stalled=stalled, open=open, key=key
        )
        return group.proxy(interface, timeout=timeout)

    async def ask(self, name: str, body: Any, *, replies: Replies = "all", timeout: float | None = ANSWER_S) -> Answers:
        """Ask an open group; see ``Bus.ask``. ``Uncertain`` if the connection broke meanwhile."""
        self._check_open()
        kind, encoded = encode_body(body)
        asked = AskGroup(checked_name(name, "the group"), kind, encoded, replies, timeout)
        return answers_of(await self.line.ask_once(asked))

    async def replica(
        self, name: str, machine: Any, *, durable: bool = False, version: int = 1, timeout: float | None = 15.0
    ) -> DurableReplica[Any]:
        """Open a durable replica; see ``Bus.replica``. Others live in members, so ``durable=True`` is needed."""
        if not durable:
            raise BadInput(self._for_members("a replica in memory") + "; or open a durable one, with durable=True")
        from ..keepers.durable_replica import opened_replica

        self._check_open()
        return await opened_replica(self._replicas, name, machine, version, timeout, self.keeping, self.new_number())

    # The end.

    def stats(self) -> dict[str, dict[str, Any]]:
        told = {"connections": self.line.connections}
        for style in self._styles.all():
            told |= getattr(style, "stats", dict)()
        return {"client": told}

    async def close(self, timeout: float = DRAIN_S) -> None:
        """Close, when everything that was published durably is confirmed; else it raises as ``flush`` does."""
        if self._closing:
            return
        self._closing = True
        try:
            await each_drained((style.drain for style in self._styles.all()), timeout)
        finally:
            try:
                for style in self._styles.all():
                    await style.close()
            finally:
                self.closed = True
                await self.line.close()

    def _check_open(self) -> None:
        if self.closed:
            raise Closed("the client is closed: connect again")

    async def _closed_after(self, error: BaseException | None) -> None:
        try:
            await self.close()
        except PluribusError as lost:
            if error is None:
                raise
            error.add_note(str(lost))

    def __repr__(self) -> str:
        return f"<client {self.url.text!r}, {self.name!r}, {'closed' if self.closed else 'open'}>"

    async def __aenter__(self) -> ClientBus:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closed_after(error)
