"""Floors and limits to compare with: sockets without Pluribus.

- ``batched``: batching in plain CPython: one msgpack frame a datagram, an acknowledgement a frame, a window; no
  identities, no views, no repair. The stack's cost is what it adds to this.
- ``raw``: one blocking system call a message, the floor; over UDP and TCP.
- ``asyncio``: a DatagramProtocol on the standard loop: the round trip that users know.
"""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter, sleep
from typing import Any

import msgspec

from .processes import Together

PATH_BYTES = 60_000
WINDOW_BYTES = 1_500_000
ANSWER_S = 5.0
"""Seconds for which every round trip waits for its answer."""
_LOOPBACK = "127.0.0.1"


class _Frame(msgspec.Struct, array_like=True):
    first: int
    payloads: list[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(_Frame).decode


def _udp(port: int, target: tuple[str, int] | None = None) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    sock.bind((_LOOPBACK, port))
    if target is not None:
        sock.connect(target)
    return sock


class _Inbox:
    def __init__(self) -> None:
        self.lists: list[list[bytes]] = []
        self.current = iter(())  # type: Any
        self.arrived = asyncio.Event()

    def put(self, payloads: list[bytes]) -> None:
        self.lists.append(payloads)
        self.arrived.set()

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> bytes:
        while True:
            for payload in self.current:
                return payload  # type: ignore[no-any-return]
            while not self.lists:
                self.arrived.clear()
                await self.arrived.wait()
            self.current = iter(self.lists.pop(0))


def batched_receiver(together: Together, port: int, count: int) -> None:
    async def main() -> None:
        sock = _udp(port)
        sock.setblocking(False)
        inbox, started = _Inbox(), 0.0

        def readable() -> None:
            nonlocal started
            for _ in range(32):
                try:
                    data, peer = sock.recvfrom(65_535)
                except BlockingIOError:
                    return
                started = started or perf_counter()
                frame = _decode_frame(data)
                inbox.put(frame.payloads)
                sock.sendto((frame.first + len(frame.payloads)).to_bytes(8, "big"), peer)

        asyncio.get_running_loop().add_reader(sock.fileno(), readable)
        together.wait()
        got = 0
        async for _ in inbox:
            got += 1
            if got == count:
                break
        together.answer(count / (perf_counter() - started))

    asyncio.run(main())


def batched_sender(together: Together, port: int, count: int, size: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sock = _udp(0)
        sock.setblocking(False)
        target = (_LOOPBACK, port)
        pending: list[bytes] = []
        pending_bytes = sent = acked = 0
        room = asyncio.Event()
        scheduled = False

        def flush() -> None:
            nonlocal pending, pending_bytes, sent, scheduled
            scheduled = False
            if pending:
                sock.sendto(_encode(_Frame(sent, pending)), target)
                sent += len(pending)
                pending, pending_bytes = [], 0

        def readable() -> None:
            nonlocal acked
            while True:
                try:
                    acked = max(acked, int.from_bytes(sock.recv(64), "big"))
                except BlockingIOError:
                    break
            if (sent - acked) * size <= WINDOW_BYTES:
                room.set()

        async def publish(payload: bytes) -> None:
            nonlocal pending_bytes, scheduled
            if pending_bytes + len(payload) > PATH_BYTES:
                flush()
                if (sent - acked) * size > WINDOW_BYTES:
                    room.clear()
                    await room.wait()
            pending.append(payload)
            pending_bytes += len(payload)
            if not scheduled:
                scheduled = True
                loop.call_soon(flush)

        loop.add_reader(sock.fileno(), readable)
        together.wait()
        payload = b"x" * size
        for _ in range(count):
            await publish(payload)
        flush()
        while acked < count:  # noqa: ASYNC110 - the measurement is over, only the process must stay
            await asyncio.sleep(0.01)

    asyncio.run(main())


def raw_receiver(together: Together, port: int, count: int) -> None:
    """Answers the rate of the messages that arrived until a pause; a blocking sender may lose some."""
    sock = _udp(port)
    sock.settimeout(0.5)
    together.wait()
    got, started, last = 0, 0.0, 0.0
    try:
        while got < count:
            sock.recv(65_535)
            last = perf_counter()
            started = started or last
            got += 1
    except TimeoutError:
        pass
    together.answer(got / max(last - started, 1e-9))


def raw_sender(together: Together, port: int, count: int, size: int) -> None:
    sock = _udp(0, (_LOOPBACK, port))
    payload = b"x" * size
    together.wait()
    for _ in range(count):
        sock.send(payload)


def raw_tcp_receiver(together: Together, port: int, count: int, size: int) -> None:
    with socket.create_server((_LOOPBACK, port)) as listener:
        together.wait()
        connection, _ = listener.accept()
        with connection:
            left, started = count * size, 0.0
            while left > 0:
                data = connection.recv(1 << 16)
                if not data:
                    return  # the sender failed, and says so itself
                started = started or perf_counter()
                left -= len(data)
            together.answer(count / (perf_counter() - started))


def raw_tcp_sender(together: Together, port: int, count: int, size: int) -> None:
    together.wait()
    with socket.create_connection((_LOOPBACK, port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        payload = b"x" * size
        for _ in range(count):
            connection.sendall(payload)


def raw_echo(together: Together, port: int, rounds: int) -> None:
    sock = _udp(port)
    together.wait()
    for _ in range(rounds):
        data, peer = sock.recvfrom(65_535)
        sock.sendto(data, peer)


def raw_ping(together: Together, port: int, rounds: int, size: int, pace_s: float) -> None:
    """Answers the round trips in µs of two blocking sockets."""
    sock = _udp(0, (_LOOPBACK, port))
    together.wait()
    payload, trips = b"x" * size, []
    for _ in range(rounds):
        started = perf_counter()
        sock.send(payload)
        sock.recv(65_535)
        trips.append((perf_counter() - started) * 1e6)
        sleep(max(0.0, pace_s - (perf_counter() - started)))
    together.answer(trips)


class _Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data, addr)


def asyncio_echo(together: Together, port: int, rounds: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(_Echo, local_addr=(_LOOPBACK, port))
        together.wait()
        await asyncio.sleep(3_600)

    asyncio.run(main())


class _Ping(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.arrived = asyncio.Event()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.arrived.set()


def asyncio_ping(
    together: Together, port: int, rounds: int, size: int, pace_s: float, answer_s: float | None = ANSWER_S
) -> None:
    """Answers the round trips in µs, one at a time at a steady pace. A datagram may be lost, so a program waits for an
    answer for so many seconds; None waits for ever, which no program does, and shows the least cost of asyncio."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, ping = await loop.create_datagram_endpoint(_Ping, remote_addr=(_LOOPBACK, port))
        together.wait()
        payload, trips = b"x" * size, []
        for _ in range(rounds):
            started = perf_counter()
            ping.arrived.clear()
            transport.sendto(payload)
            if answer_s is None:
                await ping.arrived.wait()
            else:
                await asyncio.wait_for(ping.arrived.wait(), answer_s)
            trips.append((perf_counter() - started) * 1e6)
            await asyncio.sleep(max(0.0, pace_s - (perf_counter() - started)))
        together.answer(trips)

    asyncio.run(main())
