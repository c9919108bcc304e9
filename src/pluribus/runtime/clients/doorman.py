"""A member that serves clients: programs that are no members speak to it over TCP or TLS.

``connect(url, serve="127.0.0.1:7400")`` or ``pluribus keep --serve`` opens the door. What a client asks of durable
topics goes to this member's keeper, or through it to another; what it subscribes to live, the member subscribes to for
it. A client that goes leaves nothing behind: whatever must survive has a name of its own at the keepers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...core.errors import (
    AddressTaken,
    BadInput,
    Closed,
    Gap,
    MalformedFrame,
    Overflow,
    PluribusError,
    Refused,
    TooLarge,
)
from ...core.limits import CLIENT_EVENTS_MAX, CLIENT_REQUESTS_MAX, CLIENTS_MAX
from ...core.secret import Secret
from ...core.url import BusUrl, parse_url
from ...engines.tls import tls_option
from ...pubsub.durable import requests
from ...pubsub.durable.batch import Batch, checked
from ...pubsub.durable.requests import Adopt, Asked, Heard, Lead, Listen, Live, Put, Read, Request, Tell, Unlisten
from ...pubsub.event import Event
from ...wire import door
from ...wire.bodies import Opaque, encode_body

if TYPE_CHECKING:
    from ..bus import Bus

HANDSHAKE_S = 10.0
CLOSE_S = 2.0
"""For clients that do not read what they were sent; then they are cut off."""
PUSH_EVENTS_MAX = 1_024
LISTENS_MAX = 1_024
"""Live subscriptions of one client."""

log = logging.getLogger("pluribus")


class Doorman:
    """``start`` opens the door; ``address`` is where it is."""

    def __init__(self, bus: Bus, serve: str, secret: Secret | None = None) -> None:
        self._bus = bus
        self._secret = secret
        self._url: BusUrl = parse_url(f"client://{_with_bus(serve, bus.url.bus)}")
        if len(self._url.hosts) != 1:
            raise BadInput(f"serve={serve!r} names {len(self._url.hosts)} addresses: give one HOST:PORT")
        self._server: asyncio.Server | None = None
        self._clients: set[_Client] = set()
        self.address = self._url.hosts[0]
        self.served = 0

    async def start(self) -> None:
        options = dict(self._url.options)
        tls = tls_option(options, self._url)
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

    async def _knocked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(self._bus, reader, writer)
        if len(self._clients) >= CLIENTS_MAX:
            writer.close()
            return
        self._clients.add(client)
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


class _Client:
    """One connection."""

    def __init__(self, bus: Bus, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._bus = bus
        self._reader = reader
        self._writer = writer
        self._seal = door.Seal()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listens: dict[int, _Listening] = {}
        self._room = asyncio.Semaphore(CLIENT_REQUESTS_MAX)

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
            word = requests.decode(self._seal.open(await self._frame()))
            if not isinstance(word, Asked):
                raise MalformedFrame("a client that answers what nobody asked")
            if isinstance(word.request, Read):
                listening = self._listens.get(word.request.number)
                if listening is not None:
                    listening.read(word.request.count)
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

    async def _answer(self, asked: Asked) -> None:
        try:
            answer = requests.answered(asked.number, await self._done(asked.request))
        except PluribusError as error:
            answer = requests.failed(asked.number, error)
        except Exception as error:
            log.exception("a member failed with the question of a client")
            answer = requests.failed(asked.number, error)
        with suppress(OSError):
            try:
                await self.send(answer)
            except TooLarge as error:
                await self.send(requests.failed(asked.number, error))

    async def send(self, data: bytes) -> None:
        self._writer.write(door.frame(self._seal.seal(data)))
        await self._writer.drain()

    async def _done(self, request: Request) -> Any:
        if isinstance(request, Tell):
            return await self._tell(request)
        if isinstance(request, Listen):
            if len(self._listens) >= LISTENS_MAX:
                raise Overflow(f"{LISTENS_MAX:,} live subscriptions of one client: close some")
            before = self._listens.pop(request.number, None)
            if before is not None:  # it asked twice: what it gets comes once
                await before.close()
            listening = self._listens[request.number] = _Listening(self, request, self._bus)
            return await listening.start()
        if isinstance(request, Unlisten):
            ended = self._listens.pop(request.number, None)
            return None if ended is None else await ended.close()
        if isinstance(request, Lead | Adopt):
            raise Refused("that is for members to say to keepers: use force")
        if isinstance(request, Put):
            for packed in request.batches:
                checked(packed)
        return await self._bus.keeping.ask(request)

    async def _tell(self, request: Tell) -> None:
        pubsub = self._bus.pubsub
        for packed in request.batches:
            checked(packed)
            batch = Batch(packed, 0)
            ends, data, extra, topic, kind = batch.ends.tolist(), batch.bodies, batch.extra, batch.topic, batch.kind
            for place in range(len(batch)):
                body = bytes(data[ends[place] : ends[place + 1]])
                headers = extra.headers[place] if extra.headers else None
                parent = extra.parents[place] if extra.parents else None
                await pubsub.publish_encoded(topic, kind, body, headers, parent, request.retain)

    async def close(self) -> None:
        self.abandon()  # first, so that none of its questions makes another subscription
        for listening in list(self._listens.values()):
            await listening.close()
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


class _Listening:
    """One live subscription of one client: what it gets is pushed, as far as it has room."""

    def __init__(self, client: _Client, request: Listen, bus: Bus) -> None:
        self._client = client
        self._number = request.number
        options = {"slow": "tell", **request.options}
        self._subscription = bus.pubsub.subscribe(request.pattern, request.where or None, **options)
        shares = bool(self._subscription.shared)
        self._push_events_max = 1 if shares else PUSH_EVENTS_MAX
        self._under_way_max = 1 if shares else CLIENT_EVENTS_MAX
        """Of a shared subscription the client gets one event at a time, and the next when it has finished that one."""
        self._under_way = 0
        self._room = asyncio.Event()
        self._room.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._subscription.open()
        self._task = asyncio.ensure_future(self._push())

    def read(self, count: int) -> None:
        self._under_way = max(self._under_way - count, 0)
        if self._under_way < self._under_way_max:
            self._room.set()

    async def _push(self) -> None:
        subscription = self._subscription
        with suppress(OSError):
            while not subscription.closed:
                missed = 0
                events: list[Event[Any]] = []
                try:
                    events = await subscription.receive_many(self._push_events_max)
                except Gap as gap:
                    missed = max(gap.missed, 1)
                except Overflow as error:  # it wanted to be cut off when it reads too slowly
                    await self._client.send(requests.encode(Heard(self._number, [], 0, str(error))))
                    return
                except Closed:
                    return
                self._under_way += len(events)
                if self._under_way >= self._under_way_max:
                    self._room.clear()
                await self._tell([_live(event) for event in events], missed)
                await self._room.wait()

    async def _tell(self, events: list[Live], missed: int) -> None:
        """In as many frames as it takes. An event that is too long for any counts as missed."""
        try:
            await self._client.send(requests.encode(Heard(self._number, events, missed)))
        except TooLarge as error:
            if len(events) == 1:
                log.warning("a client missed an event of %s: %s", events[0].topic, error)
                self._under_way -= 1
                await self._tell([], missed + 1)
                return
            half = len(events) // 2
            await self._tell(events[:half], missed)
            await self._tell(events[half:], 0)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        await self._subscription.close()


def _live(event: Event[Any]) -> Live:
    body = event.body
    kind, encoded = (body.kind, body.encoded) if isinstance(body, Opaque) else encode_body(body)
    headers = dict(event.headers) if event.headers else None
    parent = None if event.parent is None else (int(event.parent[0]), event.parent[1])
    id = (int(event.id[0]), event.id[1])
    return Live(
        event.topic, kind, encoded, int(event.sender), id, event.time, headers, parent, event.retained, event.again
    )


def _with_bus(serve: str, bus: str) -> str:
    """HOST:PORT[?options] with the bus between them."""
    address, question, options = serve.partition("?")
    return f"{address}/{bus}{question}{options}"
