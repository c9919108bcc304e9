"""A member that serves clients: programs that are no members speak to it over TCP or TLS.

``connect(url, serve="127.0.0.1:7400")`` or ``pluribus keep --serve`` opens the door. Requests of a client for durable
topics go to this member's keeper, or through it to another; its live subscriptions are made by this member. When a
client goes it leaves nothing behind; what must survive has a name of its own at the keepers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...core.errors import (
    AddressTaken,
    BadInput,
    MalformedFrame,
    PluribusError,
    Refused,
    TooLarge,
)
from ...core.limits import CLIENT_REQUESTS_MAX, CLIENTS_MAX
from ...core.secret import Secret
from ...core.url import BusUrl, parse_door
from ...engines.tls import tls_option
from ...wire import asking, door
from ...wire.asking import Arriving
from ..styles.access.guard import Visitor
from ..styles.style import Style
from .presence import notice_absence

if TYPE_CHECKING:
    from ..bus import Bus

HANDSHAKE_S = 10.0
CLOSE_S = 2.0
"""Seconds for clients that do not read; then they are cut off."""

log = logging.getLogger("pluribus")


class Doors(Style):
    """All doors of one member."""

    closes = 10

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.doors: list[Doorman] = []

    async def open(self, address: str, secret: Secret | None) -> Doorman:
        doorman = Doorman(self.bus, address, secret)
        await doorman.start()
        self.doors.append(doorman)
        return doorman

    async def close(self) -> None:
        for doorman in self.doors:
            await doorman.close()

    def abandon(self) -> None:
        for doorman in self.doors:
            doorman.abandon()


class Doorman:
    """``start`` opens the door; ``address`` is where it is."""

    def __init__(self, bus: Bus, serve: str, secret: Secret | None = None) -> None:
        self._bus = bus
        self._secret = secret
        self._url: BusUrl = parse_door(serve, bus.url.bus)
        self._server: asyncio.Server | None = None
        self._clients: set[ClientConnection] = set()
        self.address = self._url.hosts[0]
        self.served = 0

    def __repr__(self) -> str:
        return f"<door at {self.address[0]}:{self.address[1]}, {self.served:,} clients served>"

    async def start(self) -> None:
        options = dict(self._url.options)
        tls = tls_option(options, self._url)
        self._access(options.pop("access", "auto"))
        if options:
            raise BadInput(f"serve= has options that nobody knows: {', '.join(sorted(options))}")
        host, port = self.address
        try:
            self._server = await asyncio.start_server(
                self._knocked, host, port, ssl=None if tls is None else tls.server, limit=1 << 20
            )
        except OSError as error:
            raise AddressTaken(f"clients cannot be served at {host}:{port} ({error}): choose another port") from None
        self.address = self._server.sockets[0].getsockname()[:2]

    def _access(self, wanted: str) -> None:
        if wanted not in ("auto", "required"):
            raise BadInput(f"serve=…?access={wanted}: use access=required, or leave it out")
        if wanted == "required":
            self._bus.guard.required = True

    async def _knocked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        notice_absence(writer)
        client = ClientConnection(self._bus, reader, writer)
        if len(self._clients) >= CLIENTS_MAX:
            writer.close()
            return
        self._clients.add(client)
        self._bus.guard.come(client.visitor)
        self.served += 1
        try:
            await client.greet(self._secret)
            await client.serve()
        except (OSError, EOFError, TimeoutError):
            pass  # it is gone
        except (MalformedFrame, Refused) as error:
            log.warning("a client at %s was sent away: %s", writer.get_extra_info("peername"), error)
        finally:
            self._clients.discard(client)
            self._bus.guard.gone(client.visitor)
            await client.close()

    def stats(self) -> dict[str, Any]:
        return {"address": f"{self.address[0]}:{self.address[1]}", "clients": len(self._clients), "served": self.served}

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(client.close() for client in list(self._clients)))

    def abandon(self) -> None:
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.abandon()


class ClientConnection:
    """One client that is here: an ``Asker``."""

    client = True

    def __init__(self, bus: Bus, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._bus = bus
        self._reader = reader
        self._writer = writer
        self._seal = door.Seal()
        self._tasks: set[asyncio.Task[None]] = set()
        self.held: dict[Any, Callable[[], Awaitable[None]]] = {}
        self._room = asyncio.Semaphore(CLIENT_REQUESTS_MAX)
        self.visitor = Visitor(_address(writer), _certified(writer), self.cut)

    async def greet(self, secret: Secret | None) -> None:
        bus = self._bus
        side = door.MemberSide(bus.url.bus, int(bus.me), secret, os.urandom(door.NONCE_BYTES))
        async with asyncio.timeout(HANDSHAKE_S):
            answer, refused = side.greeted(await self._frame(greeting=True))
            self._writer.write(door.frame(answer))
            await self._writer.drain()
            if refused:
                raise Refused(refused)
            side.proven(await self._frame(greeting=True))
        self._seal = side.seal

    async def serve(self) -> None:
        while True:
            word = asking.decode(self._seal.open(await self._frame()))
            if not isinstance(word, Arriving):
                raise MalformedFrame("a client that answers what nobody asked")
            if not word.number:  # it wants no answer, and gets none: also not what is wrong with it
                with suppress(PluribusError):
                    await self._bus.answer(asking.request_of(word), self)
                continue
            await self._room.acquire()
            task = asyncio.ensure_future(self._answer(word))
            self._tasks.add(task)
            task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()

    async def _frame(self, *, greeting: bool = False) -> bytes:
        length = door.length_of(await self._reader.readexactly(door.LENGTH_BYTES), greeting=greeting)
        return await self._reader.readexactly(length)

    async def _answer(self, asked: Arriving) -> None:
        try:
            answer = asking.answered(asked.number, await self._bus.answer(asking.request_of(asked), self))
        except PluribusError as error:
            answer = asking.failed(asked.number, error)
        except Exception as error:
            log.exception("a member failed with the question of a client")
            answer = asking.failed(asked.number, error)
        with suppress(OSError):
            try:
                await self.send(answer)
            except TooLarge as error:
                await self.send(asking.failed(asked.number, error))

    async def send(self, data: bytes) -> None:
        self._writer.write(door.frame(self._seal.seal(data)))
        await self._writer.drain()

    async def push(self, style: str, body: Any) -> None:
        await self.send(asking.pushed(style, body))

    async def close(self) -> None:
        self.abandon()  # first, so that none of its questions makes another subscription
        held = list(self.held.values())
        self.held.clear()
        for let_go in held:
            await let_go()
        cutting_off = asyncio.get_running_loop().call_later(CLOSE_S, self._writer.transport.abort)
        try:
            with suppress(OSError):
                await self._writer.wait_closed()
        finally:
            cutting_off.cancel()

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._writer.close()

    def cut(self) -> None:
        """Cut the connection at once, without answers to requests under way. ``close`` follows."""
        asyncio.get_running_loop().call_soon(self._writer.transport.abort)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()


def _address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""


def _certified(writer: asyncio.StreamWriter) -> str:
    """The common name in the client's certificate, which TLS has verified; empty without TLS."""
    shown = writer.get_extra_info("peercert") or {}
    names = [value for part in shown.get("subject", ()) for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""
