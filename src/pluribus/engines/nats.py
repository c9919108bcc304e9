"""A bus carried by a NATS server or cluster, through nats-py (the extra ``pluribus[nats]``).

Subjects follow from the bus's name: ``pluribus.BUS.all`` reaches every member, ``pluribus.BUS.to.TOKEN`` one member,
whose address is its random token. The reply subject of a message has the sender's token. For a message to one member
the reply subject is the sender's inbox itself, so that the server answers "no responders" there when the member is
gone; for a message to all it is a subject without listeners, since an empty bus is no loss.

Our ``send`` is a call and nats-py's ``publish`` a coroutine. One writer task stands between them, with a bounded queue:
order is kept, gathered datagrams go out in one turn, and a server that takes no more stops the writer, not the caller.
While the connection is lost the queue waits for nats-py to reconnect; datagrams beyond its bound are counted as
dropped.

When the server itself ends the connection with a reason, for instance because the client is not allowed any more,
nats-py gives up. That may last, so no sender waits: datagrams sent meanwhile are dropped, and a new connection is tried
until there is one. The same happens if the server gives the reason only when a client reconnects.

Datagrams from one member arrive in order on each subject, none lost while the connections last; the server cuts off a
member that does not read for long. Between ``all`` and ``to`` there is no order.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import BadUrl, MissingExtra, TooLarge, Unreachable
from ..core.ids import number_of
from ..core.limits import ENGINE_QUEUE_BYTES_MAX, PATH_BYTES_LOOPBACK, PEERS_MAX
from ..core.ports import Address, Datagram, EngineStats
from ..core.url import BusUrl
from .binding import DATAGRAM_HEARD_S

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

log = logging.getLogger(__name__)

CONNECT_S = 2
RECONNECT_S = 0.25
RETURN_S = 1.0
LOOK_S = 1.0
"""nats-py may give up silently, when the server resets the connection while it is being closed. A task that publishes
would then wait for ever, so a check runs at this interval."""
CLOSE_S = 2
HANG_UP_S = 0.2
HIGH_WATER_BYTES = 1 << 20
"""Bytes of the queue, and again of nats-py's buffer; above it data should wait for ``room``."""
TOKEN_BYTES = 8


class _NobodyThereError(Exception):
    """Raised through nats-py when each server has failed once at opening; else nats-py would try for ever."""


class _InClearError(ConnectionError):
    """The server offers no TLS although ``ca=`` was given. An ``OSError``: nats-py takes it for a failed attempt."""


class NatsEngine:
    name = "nats"
    broadcasts = True
    local = False
    """Every client of the server is on the bus, wherever it is."""
    heard_s = DATAGRAM_HEARD_S

    def __init__(self, url: BusUrl, secure: dict[str, Any]) -> None:
        token = secrets.token_hex(TOKEN_BYTES)
        prefix = f"pluribus.{number_of(url.bus):012x}"
        self.address: Address = (token, 0)
        self.path_bytes = self.long_bytes = PATH_BYTES_LOOPBACK
        self.buffer_bytes = ENGINE_QUEUE_BYTES_MAX
        self.stats = EngineStats()
        self.writable = True
        self._hosts = url.hosts
        self._secure = secure
        self._all = f"{prefix}.all"
        self._to = f"{prefix}.to."
        self._from = f"{prefix}.from."
        self._queue: deque[tuple[str, str, bytes]] = deque()
        self._queued_bytes = 0
        self._arrived: list[Datagram] = []
        self._sources: dict[str, Address] = {}
        self._opening = True
        self._failures = 0
        self._client: Client | None = None
        self._writer: asyncio.Task[None] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._returning: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._receive: Callable[[list[Datagram]], None] = lambda _: None
        self._room: Callable[[], None] = lambda: None

    @classmethod
    def from_url(cls, url: BusUrl, options: dict[str, str]) -> NatsEngine:
        """Options: ``token_file=PATH`` for a server that wants a token, ``ca=PATH`` for one that has a certificate."""
        if any("@" in host for host, _ in url.hosts):
            raise BadUrl("a nats:// URL carries no password: put a token in a file and add token_file=PATH")
        return cls(url, _secure_option(options))

    @property
    def places(self) -> tuple[Address, ...]:
        return self._hosts

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        try:
            client = _new_client(self._secure)
        except ImportError:
            raise MissingExtra("nats:// is carried by nats-py, which is not here: install pluribus[nats]") from None
        self._loop = asyncio.get_running_loop()
        self._receive, self._room = receive, room
        self._wake, self._drained, self._connected = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._drained.set()
        await self._connect(client)
        self.path_bytes = self.long_bytes = min(client.max_payload, PATH_BYTES_LOOPBACK)
        self._begin(client)

    def _begin(self, client: Client) -> None:
        self._connected.set()
        self._client = client
        self._writer = self._loop.create_task(self._write(client))
        self._look(client)

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        self._check(datagrams)
        token = to[0]
        if to == self.address and self._client is not None:
            for datagram in datagrams:
                self.stats.datagrams_out += 1
                self.stats.bytes_out += len(datagram)
                self._gather(bytes(datagram), self.address)
        elif token.isalnum():
            self._put(datagrams, self._to + token, self._to + self.address[0])
        else:  # an address from a peer that is none of ours
            self.stats.dropped += len(datagrams)

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        self._check(datagrams)
        self._put(datagrams, self._all, self._from + self.address[0])

    def set_peers(self, peers: Sequence[Address]) -> None:
        """Nothing to do: the server reaches every member by itself."""

    async def close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    # Sending

    def _check(self, datagrams: Sequence[bytes]) -> None:
        for datagram in datagrams:
            if len(datagram) > self.path_bytes:
                raise TooLarge(
                    f"a datagram of {len(datagram)} bytes exceeds the path of {self.path_bytes}: "
                    "cut it to fit, or raise max_payload of the NATS server"
                )

    def _put(self, datagrams: Sequence[bytes], subject: str, reply: str) -> None:
        if self._client is None or self._closing is not None:
            self.stats.dropped += len(datagrams)
            return
        for datagram in datagrams:
            if self._queued_bytes + len(datagram) > ENGINE_QUEUE_BYTES_MAX:
                self.stats.dropped += 1
                continue
            self._queue.append((subject, reply, datagram))
            self._queued_bytes += len(datagram)
        if self._queued_bytes > HIGH_WATER_BYTES:
            self.writable = False
        self._drained.clear()
        self._wake.set()

    async def _write(self, client: Client) -> None:
        """Publish waiting datagrams. ``publish`` blocks only while nats-py's buffer is full of data that the server
        does not take."""
        import nats.errors

        queue = self._queue
        while not client.is_closed:
            await self._wake.wait()
            self._wake.clear()
            self.stats.calls_out += 1
            while queue:
                if not client.is_connected:
                    await self._connected.wait()
                subject, reply, datagram = queue.popleft()
                self._queued_bytes -= len(datagram)
                try:
                    await client.publish(subject, datagram, reply=reply)
                except (nats.errors.Error, OSError):
                    self.stats.dropped += 1
                else:
                    self.stats.datagrams_out += 1
                    self.stats.bytes_out += len(datagram)
                if not self.writable and self._queued_bytes < HIGH_WATER_BYTES // 2:
                    self.writable = True
                    self._room()
            self._drained.set()

    # Receiving

    async def _on_message(self, message: Msg) -> None:
        """nats-py calls this for every message of one read without giving up the turn: a list gathers them."""
        source = self._sources.get(message.reply) or self._source_of(message)
        if source is None:
            return
        if len(message.data) > PATH_BYTES_LOOPBACK:
            self.stats.errors += 1
            return
        self._gather(message.data, source)

    def _source_of(self, message: Msg) -> Address | None:
        """The sender; None for the server's "no responders" and for messages of strangers on our subjects."""
        reply = message.reply
        for prefix in (self._to, self._from):
            token = reply.removeprefix(prefix)
            if token != reply and len(token) == 2 * TOKEN_BYTES and token.isalnum():
                if len(self._sources) >= PEERS_MAX:
                    self._sources.clear()
                source = self._sources[reply] = (token, 0)
                return source
        if message.headers and message.headers.get("Status") == "503":
            self.stats.dropped += 1
        else:
            self.stats.errors += 1
        return None

    def _gather(self, data: bytes, source: Address) -> None:
        if not self._arrived:
            self._loop.call_soon(self._hand_over)
        self._arrived.append((data, source))

    def _hand_over(self) -> None:
        arrived, self._arrived = self._arrived, []
        if self._closing is None:
            self.stats.datagrams_in += len(arrived)
            self.stats.bytes_in += sum([len(data) for data, _ in arrived])
            self._receive(arrived)

    # The connection

    async def _connect(self, client: Client) -> None:
        import nats.errors

        refusal: Unreachable | None = None
        where = ", ".join(f"{host}:{port}" for host, port in self._hosts)
        try:
            async with asyncio.timeout(CONNECT_S * len(self._hosts) + 1):
                await client.connect(
                    servers=[f"nats://{f'[{host}]' if ':' in host else host}:{port}" for host, port in self._hosts],
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    connect_timeout=CONNECT_S,
                    reconnect_time_wait=RECONNECT_S,  # type: ignore[arg-type]
                    max_reconnect_attempts=-1,
                    no_echo=True,
                    pending_size=HIGH_WATER_BYTES,
                    **self._secure,
                )
                for subject in (self._all, self._to + self.address[0]):
                    await client.subscribe(subject, cb=self._on_message, pending_bytes_limit=self.buffer_bytes)
                await _settle(client, CONNECT_S)  # the server knows our subscriptions before any member learns of us
        except (_NobodyThereError, nats.errors.Error, OSError) as error:
            refusal = _refusal(error.__cause__ or error, where)
        except asyncio.CancelledError:
            await _hang_up(client, HANG_UP_S)
            raise
        self._opening = False
        if refusal is not None:
            await _hang_up(client, HANG_UP_S)
            raise refusal

    async def _on_error(self, error: Exception) -> None:
        from nats.errors import SlowConsumerError

        if self._opening:
            self._failures += 1
            if self._failures >= len(self._hosts):
                raise _NobodyThereError from error
        elif isinstance(error, SlowConsumerError):
            self.stats.dropped += 1
        else:
            self.stats.errors += 1
            if self._client is not None and not self._client.is_connected and _lets_nobody_in(error):
                self._give_up(self._client)

    async def _on_disconnected(self) -> None:
        self._connected.clear()

    async def _on_reconnected(self) -> None:
        self._connected.set()

    async def _on_closed(self) -> None:
        if self._client is not None and self._client.is_closed:
            self._give_up(self._client)

    def _look(self, client: Client) -> None:
        if client.is_closed:
            self._give_up(client)
        elif client is self._client:
            self._looking = self._loop.call_later(LOOK_S, self._look, client)

    def _give_up(self, client: Client) -> None:
        """If this member did not close the connection, nats-py will not reconnect, or not soon."""
        if client is not self._client or self._writer is None or self._closing is not None:
            return
        log.warning("the NATS server closed the connection (%s): trying again until it lets us in", client.last_error)
        self._client = None
        self._writer.cancel()
        self.stats.dropped += len(self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        self._returning = self._loop.create_task(self._return(client))
        if not self.writable:
            self.writable = True
            self._room()

    async def _return(self, before: Client) -> None:
        await asyncio.wait([self._loop.create_task(_hang_up(before, HANG_UP_S))])
        while self._client is None:
            await asyncio.sleep(RETURN_S)
            self._opening, self._failures = True, 0
            client = _new_client(self._secure)
            try:
                await self._connect(client)
            except Unreachable:
                continue
            self._begin(client)

    async def _close(self) -> None:
        """At most ``CLOSE_S`` for the queue and as long again for the server's word that it has everything."""
        if self._looking is not None:
            self._looking.cancel()
        if self._returning is not None:
            self._returning.cancel()
            await asyncio.wait([self._returning])
        client = self._client
        if client is None or self._writer is None:
            return
        import nats.errors  # not before: an engine that was never opened may be closed where nats-py is missing

        if client.is_connected:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._drained.wait()
        self.stats.dropped += len(self._queue)
        self._queue.clear()
        with suppress(nats.errors.Error, OSError):
            if client.is_connected:
                await _settle(client, CLOSE_S)
        await _hang_up(client, CLOSE_S)
        self._wake.set()
        self._connected.set()
        self._writer.cancel()
        await asyncio.wait([self._writer])


def _new_client(secure: dict[str, Any]) -> Client:
    """A new client. With ``ca=`` it sends nothing to a server that offers no TLS; nats-py itself would go on in clear,
    and an attacker between the two could cause that."""
    from nats.aio.client import Client

    class ThoroughClient(Client):
        def _connect_command(self) -> bytes:
            if "tls" in secure and not self._server_info.get("tls_required"):
                raise _InClearError
            return super()._connect_command()

        async def _close(self, status: int, do_cbs: bool = True) -> None:
            try:
                await super()._close(status, do_cbs)
            except RuntimeError:  # uvloop's, if the server was quicker and something is still to be written to it
                self._pending, self._pending_data_size = [], 0
                self._status = Client.DISCONNECTED  # nats-py would take it for closed, and leave its tasks running
                await super()._close(status, do_cbs)

    return ThoroughClient()


def _lets_nobody_in(error: BaseException) -> bool:
    """True if a server wants another token than ours, or wants one at all."""
    return "authorization" in str(error).lower()


def _refusal(error: BaseException, where: str) -> Unreachable:
    if _lets_nobody_in(error):
        return Unreachable(f"the NATS server at {where} does not let us in: check token_file=")
    if isinstance(error, _InClearError):
        return Unreachable(f"the NATS server at {where} has no TLS: give it a certificate, or leave out ca=")
    if isinstance(error, ssl.SSLError):
        return Unreachable(f"the certificate of the NATS server at {where} is not of ca=: check ca=")
    if isinstance(error, ConnectionResetError):  # it may be faster to hang up than we are to read why
        return Unreachable(f"{where} hangs up: is it a NATS server, and does it want token_file= or ca=?")
    return Unreachable(f"no NATS server answers at {where}: is nats-server running there?")


async def _settle(client: Client, timeout_s: int) -> None:
    """Returns when the server has done everything that we asked for.

    One flush is not enough: nats-py writes its PING at once, ahead of commands that wait for its flusher task. By the
    time of the answer the flusher has had its turn, so a second PING is behind them.
    """
    await client.flush(timeout_s)
    await client.flush(timeout_s)


async def _hang_up(client: Client, timeout_s: float) -> None:
    """Bounded, because nats-py would wait for the end of connections that never began, as after a failed handshake."""
    from nats.errors import Error

    with suppress(Error, OSError):
        async with asyncio.timeout(timeout_s):
            await client.close()


def _secure_option(options: dict[str, str]) -> dict[str, Any]:
    """Pop ``token_file=`` and ``ca=``. Secrets come from files: a URL ends up in logs and process lists."""
    secure: dict[str, Any] = {}
    if (token_file := options.pop("token_file", None)) is not None:
        try:
            secure["token"] = Path(token_file).read_text().strip()
        except (OSError, ValueError):
            raise BadUrl(f"token_file={token_file} cannot be read: give the path of a text file") from None
    if (ca := options.pop("ca", None)) is not None:
        try:
            secure["tls"] = ssl.create_default_context(cafile=ca)
        except (ssl.SSLError, OSError):
            raise BadUrl(f"ca={ca} holds no certificate: give the authority's certificate as PEM") from None
    return secure
