"""Logs without a loop: a blocking client for scripts, worker processes and Spark executors.

It has one plain socket and no thread, and is made in microseconds. It may be pickled, and copied by a fork: a copy
opens a connection of its own when it is first used. Reading asks for the next piece before it hands out the last, so
that the keeper reads while the caller works. If the member goes away, the client goes on with another host of the URL;
every request may be repeated without harm.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic, sleep, time
from types import TracebackType
from typing import Any

from ...core.errors import (
    BadInput,
    BadUrl,
    Closed,
    Damaged,
    LogChanged,
    NotPrimary,
    Overflow,
    Refused,
    Uncertain,
    Unreachable,
)
from ...core.url import parse_url
from ...engines.tls import tls_option
from ...pubsub.durable import commands
from ...pubsub.durable.batch import StoredBatch
from ...pubsub.durable.commands import REFUSED, Outcome
from ...pubsub.durable.many import COMMANDS_MAX, MANY_BYTES, AtMany, DoMany, FetchedMany, FetchMany
from ...pubsub.durable.requests import (
    At,
    Do,
    Fetch,
    Fetched,
    Find,
    Known,
    Last,
    Put,
    Request,
)
from ...pubsub.durable.stages import KEEP_WRITER_S
from ...wire import asking, door
from ...wire.asking import Answered, Failed
from ..group.secret import Given, secret_from

ANSWER_S = 30.0
CONNECT_S = 5.0
PAUSE_S = 0.05
READ_BYTES = 2 << 20
DO_BYTES = 1 << 20
"""Commands that are done in turn are sent together up to this."""
Range = tuple[str, int, int]
"""A topic, and its offsets from a first up to a last one."""
LEASE_S = 3_600.0
_TRANSIENT = (Closed, Damaged, NotPrimary, Overflow, Uncertain, Unreachable)


class LogClient:
    """A connection to ``client://HOST:PORT[,HOST:PORT]/BUS``. Not for several threads at once."""

    def __init__(
        self, url: str, *, secret: Given | None = None, timeout: float = ANSWER_S, begin_with: int = 0
    ) -> None:
        """``begin_with`` is the host of the URL that is asked first, counted round: readers that count differently
        spread over the keepers."""
        self._text = url
        self._url = parse_url(url)
        if self._url.scheme != "client":
            raise BadUrl(f"{url!r} is no address of a client: write client://HOST:PORT/BUS")
        self._given = secret
        self._timeout = timeout
        options = dict(self._url.options)
        self._tls = tls_option(options, self._url)
        if options:
            raise BadUrl(f"{url!r} has options that client does not know: {', '.join(sorted(options))}")
        turn = begin_with % len(self._url.hosts)
        self._begin_with = turn
        self._hosts = [*self._url.hosts[turn:], *self._url.hosts[:turn]]
        self._socket: socket.socket | None = None
        self._owner = os.getpid()
        self._seal = door.Seal()
        self._numbers = 0
        self._asked: dict[int, Answered | Failed | None] = {}
        """Requests on this connection that await an answer; the answer is here if it came before its turn."""

    def __getstate__(self) -> dict[str, Any]:
        return {
            "url": self._text,
            "secret": self._given,
            "timeout": self._timeout,
            "begin_with": self._begin_with,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        url = state.pop("url")
        self.__init__(url, **state)  # type: ignore[misc]

    # What can be asked.

    def topics(self, pattern: str = "#") -> list[Known]:
        """Durable topics that match, with their bounds."""
        found: list[Known] = self.ask(Find(pattern))
        return found

    def offsets(self, topic: str) -> tuple[int, int]:
        """The first offset that is kept, and the next one; (0, 0) for a topic that is not there."""
        found = self.topics(topic)
        return (found[0].first, found[0].end) if found else (0, 0)

    def offset_at(self, topic: str, time_s: float) -> int:
        """The first offset whose event is of this time, in seconds since 1970, or later."""
        found: int = self.ask(At(topic, int(time_s * 1e6)))
        return found

    def offsets_at(self, topics: Sequence[str], time_s: float) -> list[int]:
        """As ``offset_at``, of many topics with one request."""
        found: list[int] = self.ask(AtMany(list(topics), int(time_s * 1e6))) if topics else []
        return found

    def read(
        self,
        topic: str,
        start: int,
        stop: int,
        *,
        max_bytes: int = READ_BYTES,
        where: str = "",
        bodies: bool = True,
        log: int = 0,
        whole: bool = False,
    ) -> Iterator[StoredBatch]:
        """Every event from ``start`` up to ``stop``, in packed batches, as far as they are there now.

        ``BadInput`` if retention removed ``start``. With ``where`` only events that match; ``bodies=False`` leaves
        bodies out. See ``pubsub.durable.batch.StoredBatch`` for the columns. ``LogChanged`` if the log is not number
        ``log`` (``Known.log``; 0 is any), or, with ``whole``, if not all of it is there.
        """
        at = start
        number = self._begin(Fetch(topic, at, stop, max_bytes, 0.0, where, bodies)) if at < stop else 0
        try:
            while at < stop:
                asked = Fetch(topic, at, stop, max_bytes, 0.0, where, bodies)
                found: Fetched = self._end(number, asked)
                self._check_log(log, found.log)
                last, at = at, found.next
                done = at >= stop or (at == last and not found.pieces)
                if not done:
                    number = self._begin(Fetch(topic, at, stop, max_bytes, 0.0, where, bodies))
                for offset, packed in found.pieces:
                    yield StoredBatch(packed, offset).cut(last, stop)
                if done:
                    break
            if whole and at < stop:
                raise LogChanged(_short(topic, at, stop))
        finally:
            self._asked.pop(number, None)  # its reader reads no further

    def read_many(
        self,
        ranges: Sequence[Range],
        *,
        max_bytes: int = MANY_BYTES,
        where: str = "",
        bodies: bool = True,
        log: int = 0,
        over: Callable[[str, int, int], int] | None = None,
    ) -> Iterator[tuple[Sequence[Range], list[tuple[int, int, bytes]]]]:
        """Every event of these ranges, of different topics: of each topic in order, topics as they stand in the log.
        One request for all of them, and one more for each ``max_bytes``.

        Yields the ranges that were asked for, and pieces: the number of a range, the offset of a packed batch's first
        event, the batch, which may reach beyond the range: ``StoredBatch(packed, offset).cut(start, stop)``.

        ``LogChanged`` if the log is not number ``log``, or if not all of a range is there. Where retention removed the
        start of a range, ``over(topic, start, first)`` says where to go on, or raises; ``BadInput`` without it.
        """
        wanted = [(topic, start, stop) for topic, start, stop in ranges if start < stop]
        asked = FetchMany(wanted, max_bytes, where, bodies)
        number = self._begin(asked) if wanted else 0
        try:
            while wanted:
                found: FetchedMany = self._end(number, asked)
                self._check_log(log, found.log)
                left = [(wanted[at][0], start, wanted[at][2]) for at, start in found.left]
                if found.ended and not found.pieces:
                    topic, at, stop = left[0]
                    raise LogChanged(_short(topic, at, stop))
                for at, first in found.gone:
                    topic, start, stop = wanted[at]
                    start = min((over or _removed)(topic, start, first), stop)
                    left += [(topic, start, stop)] if start < stop else []
                before, wanted = wanted, left
                if wanted:
                    asked = FetchMany(wanted, max_bytes, where, bodies)
                    number = self._begin(asked)
                if found.pieces:
                    yield before, found.pieces
        finally:
            self._asked.pop(number, None)  # its reader reads no further

    def _check_log(self, log: int, found: int) -> None:
        if log and found and found != log:
            raise LogChanged(
                f"the keepers of {self._text} have another log ({found:x}) than the one to be read "
                f"({log:x}): name the keepers of that one"
            )

    def put(self, batches: Sequence[bytes]) -> list[Outcome]:
        """Append packed batches, which carry their identities; see ``pubsub.durable.batch.pack``."""
        found: list[Outcome] = self.ask(Put(list(batches)))
        return found

    def do(self, command: commands.Command) -> Outcome:
        """Have a command done; ``Refused`` says why it was not."""
        return _done(self.ask(Do(commands.encode(command))))

    def do_in_turn(self, wanted: Iterable[commands.Command]) -> None:
        """Have commands done one after another. Small ones travel together; the next are made while these are under
        way."""
        asked: tuple[int, DoMany] | None = None
        held: list[bytes] = []
        size = 0
        for command in wanted:
            held.append(commands.encode(command))
            size += len(held[-1])
            if size >= DO_BYTES or len(held) >= COMMANDS_MAX:
                asked, held, size = self._do_next(asked, held), [], 0
        if held:
            asked = self._do_next(asked, held)
        self._all_done(asked)

    def _do_next(self, before: tuple[int, DoMany] | None, held: list[bytes]) -> tuple[int, DoMany]:
        self._all_done(before)
        request = DoMany(held)
        return self._begin(request), request

    def _all_done(self, asked: tuple[int, DoMany] | None) -> None:
        outcomes: list[Outcome] = [] if asked is None else self._end(*asked)
        for outcome in outcomes:
            _done(outcome)

    def stage(
        self,
        writer: str,
        batch: int,
        attempt: str,
        part: int,
        packed: bytes,
        lease: float = LEASE_S,
        *,
        query: str = "",
        anew: bool = False,
    ) -> Outcome:
        """Write a part of a batch that is not visible before ``commit_batch``. Parts are numbered from 0."""
        at = int(time() * 1e6)
        return self.do(commands.Stage(writer, batch, attempt, part, at, int(lease * 1e6), packed, query, anew))

    def commit_batch(
        self,
        writer: str,
        batch: int,
        attempts: Sequence[tuple[str, int]],
        *,
        query: str = "",
        anew: bool = False,
        keep: float = KEEP_WRITER_S,
    ) -> Outcome:
        """Make what these attempts staged visible, all at once; each with the number of its parts. Once.

        The number of the batch is remembered for ``keep`` seconds. It belongs to ``query``: under the name of a writer
        that another query has used, ``Refused``, unless it begins ``anew``.
        """
        at, keep_us = int(time() * 1e6), int(keep * 1e6)
        return self.do(commands.Publish(writer, batch, list(attempts), query, anew, at, keep_us))

    def abort_batch(self, writer: str, batch: int, *, query: str = "") -> None:
        """Drop what was staged for a batch."""
        self.do(commands.Drop(0, writer, batch, query))

    def last_batch(self, writer: str, *, query: str = "") -> int:
        """The last batch that a writer committed; -1 if none."""
        found: int = self.ask(Last(writer, query))
        return found

    # How it is asked.

    def ask(self, request: Request) -> Any:
        """Ask until one of the hosts answers; after ``timeout`` seconds the last error is raised."""
        return self._end(self._begin(request), request)

    def _begin(self, request: Request) -> int:
        """Send a request, if that can be done at once; ``_end`` does the rest."""
        try:
            return self._send(request)
        except (OSError, Unreachable):
            self._next_host()
            return 0

    def _end(self, number: int, request: Request) -> Any:
        until = monotonic() + self._timeout
        pause_s = PAUSE_S
        while True:
            try:
                if not number:
                    number = self._send(request)
                return self._answer(number, request)
            except _TRANSIENT as error:
                if monotonic() > until:
                    raise
                if not isinstance(error, (Overflow, NotPrimary, Uncertain)):
                    self._next_host()
            except OSError as error:
                if monotonic() > until:
                    raise Unreachable(f"no answer from {self._text} in {self._timeout:g} s ({error})") from None
                self._next_host()
            number = 0
            sleep(pause_s)
            pause_s = min(pause_s * 2, 1.0)

    def _send(self, request: Request) -> int:
        connection = self._connected()
        self._numbers += 1
        connection.sendall(door.frame(self._seal.seal(asking.asked(self._numbers, request))))
        self._asked[self._numbers] = None
        return self._numbers

    def _answer(self, number: int, request: Request) -> Any:
        if self._socket is None or self._owner != os.getpid() or number not in self._asked:
            raise Closed("the connection broke before this was answered")
        while self._asked[number] is None:
            word = asking.decode(self._seal.open(_frame(self._socket)))
            if isinstance(word, (Answered, Failed)) and word.number in self._asked:
                self._asked[word.number] = word
        answer = self._asked.pop(number)
        if isinstance(answer, Failed):
            raise asking.error_of(answer)
        assert answer is not None
        return asking.result_of(request, answer)

    def _connected(self) -> socket.socket:
        if self._owner != os.getpid():  # a copy by fork: the connection is the other's
            self._drop()
            self._owner = os.getpid()
        if self._socket is None:
            host = self._hosts[0]
            try:
                connection = socket.create_connection(host, CONNECT_S)
            except OSError as error:
                raise Unreachable(
                    f"no member serves clients at {host[0]}:{host[1]} ({error}): look at the URL"
                ) from None
            try:
                self._greet(connection)
            except BaseException:
                connection.close()
                raise
        assert self._socket is not None
        return self._socket

    def _greet(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            connection = self._tls.client.wrap_socket(connection)
        connection.settimeout(self._timeout)
        side = door.ClientSide(
            self._url.bus, f"process-{os.getpid()}", secret_from(self._given), os.urandom(door.NONCE_BYTES)
        )
        connection.sendall(door.frame(side.hello))
        connection.sendall(door.frame(side.welcomed(_frame(connection))))
        self._seal, self._socket = side.seal, connection

    def _next_host(self) -> None:
        self._drop()
        self._hosts = [*self._hosts[1:], self._hosts[0]]

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        self._asked.clear()
        if connection is not None:
            connection.close()

    def close(self) -> None:
        self._drop()

    def __enter__(self) -> LogClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _done(outcome: Outcome) -> Outcome:
    if outcome.status == REFUSED:
        raise Refused(outcome.reason)
    return outcome


def _short(topic: str, at: int, stop: int) -> str:
    return (
        f"the topic {topic!r} ends at {at}, before the {stop} up to which it was to be read: its keepers "
        "lost events or hold an older copy; restore them, or read up to its end"
    )


def _removed(topic: str, start: int, first: int) -> int:
    raise BadInput(
        f"offset {start} of {topic!r} was removed by retention: the first that is kept is {first}; "
        'start there, or with "earliest"'
    )


def _frame(connection: socket.socket) -> bytes:
    return _exactly(connection, door.length_of(bytes(_exactly(connection, door.LENGTH_BYTES))))


def _exactly(connection: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    view = memoryview(buffer)
    got = 0
    while got < count:
        some = connection.recv_into(view[got:], count - got)
        if not some:
            raise ConnectionResetError("the member closed the connection")
        got += some
    return bytes(buffer)
