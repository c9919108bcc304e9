"""A client's connection to a member: requests and answers over one stream, to one of the hosts of the URL.

When the connection breaks, unanswered requests fail with ``Closed``. Their callers ask again, and the next request
connects to the next host. Live subscriptions are told, so that they can begin again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...core.errors import BadUrl, Closed, MalformedFrame, PluribusError, Refused, Uncertain, Unreachable
from ...core.ports import Address
from ...core.secret import Secret
from ...core.url import BusUrl
from ...engines.tls import tls_option
from ...wire import asking, door
from ...wire.asking import Answered, Failed, Pushed
from .login import LOGIN, Credentials, check_private, logged_in, login_of
from .presence import notice_absence

CONNECT_S = 5.0
LOGIN_S = 60.0
"""Seconds for a login: after a wrong password the member answers slowly."""
CLOSE_S = 2.0
"""Seconds for a member that does not read."""
ANSWER_S = 30.0
"""A connection on which a question is not answered by then is given up."""


class SocketLine:
    """``heard`` has a function by style for what is pushed; the functions in ``broken`` are called when the connection
    breaks."""

    def __init__(self, url: BusUrl, name: str, secret: Secret | None, login: Credentials | None = None) -> None:
        self._url = url
        self._name = name
        self._secret = secret
        self._login = login
        options = dict(url.options)
        self._tls = tls_option(options, url)
        if options:
            raise BadUrl(f"{url.text!r} has options that client does not know: {', '.join(sorted(options))}")
        self._hosts = list(url.hosts)
        self._writer: asyncio.StreamWriter | None = None
        self._seal = door.Seal()
        self._reading: asyncio.Task[None] | None = None
        self._connecting: asyncio.Future[None] | None = None
        self._numbers = 0
        self._waiting: dict[int, tuple[Any, asyncio.Future[Any]]] = {}
        self._closed = False
        self.heard: dict[str, Callable[[Any], None]] = {}
        self.broken: list[Callable[[], None]] = []
        self.member = 0
        self.connections = 0

    async def ask(self, request: Any) -> Any:
        """Ask once, on the present connection or a new one."""
        if self._writer is None:
            await self.connected()
        writer = self._writer
        if writer is None:
            raise Closed("the connection broke at once: ask again")
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (request, future)
        patience_s = ANSWER_S + float(getattr(request, "wait_s", None) or 0.0)
        timer = asyncio.get_running_loop().call_later(patience_s, writer.transport.abort)
        try:
            self.tell(number, request)
            return await future
        finally:
            timer.cancel()
            self._waiting.pop(number, None)

    async def ask_once(self, request: Any) -> Any:
        """Ask something that must not be asked twice: ``Uncertain`` if the connection broke before the answer."""
        try:
            return await self.ask(request)
        except Closed as error:
            raise Uncertain(f"{error}; it may have been done or not", (0, 0)) from None

    def tell(self, number: int, request: Any) -> None:
        """Send a question; number 0 means that no answer is wanted."""
        if self._writer is not None:
            self._writer.write(door.frame(self._seal.seal(asking.asked(number, request))))

    async def connected(self) -> None:
        """Returns when there is a connection; ``Unreachable`` if no host answers, ``Refused`` if all refuse."""
        if self._closed:
            raise Closed("the client is closed: connect again")
        if self._writer is not None:
            return
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.ensure_future(self._connect())
        await asyncio.shield(self._connecting)

    async def _connect(self) -> None:
        errors: list[str] = []
        refused: PluribusError | None = None
        for _ in range(len(self._hosts)):
            host = self._hosts[0]
            self._hosts = [*self._hosts[1:], host]
            try:
                async with asyncio.timeout(CONNECT_S if self._login is None else LOGIN_S):
                    await self._greet(host)
            except Refused as error:
                refused = error
            except (OSError, EOFError, MalformedFrame, TimeoutError) as error:
                errors.append(f"{host[0]}:{host[1]} ({str(error) or 'no answer'})")
            else:
                self._hosts = [host, *self._hosts[:-1]]
                return
        if refused is not None:
            raise refused
        raise Unreachable(
            f"no member serves clients at {' or '.join(errors)}: start one with serve=, or look at the URL"
        )

    async def _greet(self, host: Address) -> None:
        tls = None if self._tls is None else self._tls.client
        reader, writer = await asyncio.open_connection(*host, ssl=tls, limit=4 << 20)
        notice_absence(writer)
        try:
            side = door.ClientSide(self._url.bus, self._name, self._secret, os.urandom(door.NONCE_BYTES))
            writer.write(door.frame(side.hello))
            writer.write(door.frame(side.welcomed(await _frame(reader, greeting=True))))
            if self._login is not None:
                check_private(host[0], sealed=tls is not None or self._secret is not None)
                writer.write(door.frame(side.seal.seal(asking.asked(LOGIN, login_of(self._login)))))
                logged_in(asking.decode(side.seal.open(await _frame(reader))))
        except BaseException:
            writer.close()
            raise
        self._seal, self._writer, self.member = side.seal, writer, side.member
        self.connections += 1
        self._reading = asyncio.ensure_future(self._read(reader, writer))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        why = "the connection to the bus broke"
        try:
            while True:
                word = asking.decode(self._seal.open(await _frame(reader)))
                if isinstance(word, Pushed):
                    heard = self.heard.get(word.style)
                    if heard is not None:
                        heard(asking.push_of(word))
                elif isinstance(word, (Answered, Failed)):
                    self._answer(word)
        except MalformedFrame as error:
            why = str(error)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()
            if self._writer is writer:
                self._writer = None
                self._fail(why)
                if not self._closed:
                    for broken in self.broken:
                        broken()

    def _answer(self, word: Answered | Failed) -> None:
        request, future = self._waiting.get(word.number, (None, None))
        if request is None or future is None or future.done():
            return
        if isinstance(word, Failed):
            future.set_exception(asking.error_of(word))
        else:
            future.set_result(asking.result_of(request, word))

    def _fail(self, why: str) -> None:
        for _, future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(Closed(f"{why} before this was answered: ask again"))

    async def close(self) -> None:
        self._closed = True
        self._fail("the client was closed")
        writer = self._writer
        if writer is not None:
            cutting_off = asyncio.get_running_loop().call_later(CLOSE_S, writer.transport.abort)
            with suppress(OSError):
                await writer.drain()
            cutting_off.cancel()
            writer.close()
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading


async def _frame(reader: asyncio.StreamReader, *, greeting: bool = False) -> bytes:
    length = door.length_of(await reader.readexactly(door.LENGTH_BYTES), greeting=greeting)
    return await reader.readexactly(length)
