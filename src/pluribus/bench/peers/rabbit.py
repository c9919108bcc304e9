"""RabbitMQ through pika: a durable queue, persistent messages, confirms; ``depth`` messages under way.

The node has its own folder, ports and port mapper (``epmd``, which would go on running, and is ended with the node).
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from ...core.errors import Unavailable
from ..ports import free_port
from .kept import WARM_WINDOWS, client, folder, program, server

QUEUE = "events"
ANSWER_S = 30.0


def rabbitmq(size: int, depth: int, seconds: float) -> float:
    client("pika")
    with _node() as port:
        return asyncio.run(_published(port, bytes(size), depth, seconds))


@contextmanager
def _node() -> Iterator[int]:
    with folder() as place:
        port, mapper = free_port(), free_port()
        (place / "plugins").write_text("[].\n", encoding="utf-8")
        settings = {
            "HOME": place,
            "ERL_EPMD_PORT": mapper,
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_PORT": port,
            "RABBITMQ_DIST_PORT": free_port(),
            "RABBITMQ_MNESIA_BASE": place,
            "RABBITMQ_LOG_BASE": place,
            "RABBITMQ_PID_FILE": place / "pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": place / "plugins",
        }
        environment = {**os.environ, **{name: str(value) for name, value in settings.items()}}
        try:
            with server([program("rabbitmq-server")], port, environment=environment):
                yield port
        finally:
            command = [program("epmd"), "-port", str(mapper), "-kill"]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


async def _published(port: int, body: bytes, depth: int, seconds: float) -> float:
    import pika

    channel = await _channel(port)
    loop = asyncio.get_running_loop()
    kept = pika.BasicProperties(delivery_mode=2)
    sent = confirmed = 0
    waiting = loop.create_future()

    def confirm(frame: Any) -> None:
        nonlocal confirmed
        if frame.method.NAME != "Basic.Ack":
            raise Unavailable(f"RabbitMQ refused an event: {frame.method.NAME}")
        confirmed = frame.method.delivery_tag  # in order, one or several at a time: this is the last
        if confirmed == sent and not waiting.done():
            waiting.set_result(None)

    async def window() -> None:
        nonlocal sent, waiting
        waiting = loop.create_future()
        sent += depth
        for _ in range(depth):
            channel.basic_publish("", QUEUE, body, kept)
        await asyncio.wait_for(waiting, ANSWER_S)

    selected = loop.create_future()
    channel.confirm_delivery(confirm, callback=selected.set_result)
    await asyncio.wait_for(selected, ANSWER_S)
    for _ in range(WARM_WINDOWS):
        await window()
    before, since = sent, perf_counter()
    while perf_counter() - since < seconds:
        await window()
    rate = (sent - before) / (perf_counter() - since)
    channel.connection.close()
    return rate


def queued(size: int, depth: int, seconds: float) -> float:
    """Messages a second that were sent and confirmed, received and acknowledged."""
    client("pika")
    with _node() as port:
        return asyncio.run(_queued(port, bytes(size), depth, seconds))


async def _queued(port: int, body: bytes, depth: int, seconds: float) -> float:
    import pika

    channel, receiving = await _channel(port), await _channel(port)
    loop = asyncio.get_running_loop()
    kept = pika.BasicProperties(delivery_mode=2)
    sent = confirmed = received = 0
    waiting = loop.create_future()

    def look() -> None:
        if confirmed == sent == received and not waiting.done():
            waiting.set_result(None)

    def confirm(frame: Any) -> None:
        nonlocal confirmed
        confirmed = frame.method.delivery_tag
        look()

    def deliver(of: Any, method: Any, properties: Any, data: bytes) -> None:
        nonlocal received
        received += 1
        if received == sent:
            receiving.basic_ack(method.delivery_tag, multiple=True)
            look()

    selected, prefetched, consuming = (loop.create_future() for _ in range(3))
    channel.confirm_delivery(confirm, callback=selected.set_result)
    receiving.basic_qos(prefetch_count=2 * depth, callback=prefetched.set_result)
    await asyncio.wait_for(asyncio.gather(selected, prefetched), ANSWER_S)
    receiving.basic_consume(QUEUE, deliver, callback=consuming.set_result)
    await asyncio.wait_for(consuming, ANSWER_S)

    async def window() -> None:
        nonlocal sent, waiting
        waiting = loop.create_future()
        sent += depth
        for _ in range(depth):
            channel.basic_publish("", QUEUE, body, kept)
        await asyncio.wait_for(waiting, ANSWER_S)

    for _ in range(WARM_WINDOWS):
        await window()
    before, since = sent, perf_counter()
    while perf_counter() - since < seconds:
        await window()
    rate = (sent - before) / (perf_counter() - since)
    channel.connection.close()
    receiving.connection.close()
    return rate


async def _channel(port: int) -> Any:
    """An open channel, with the queue declared."""
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection

    loop = asyncio.get_running_loop()
    made: asyncio.Future[Any] = loop.create_future()

    def failed(_: Any, error: Exception) -> None:
        if not made.done():
            made.set_exception(Unavailable(f"RabbitMQ does not answer: {error!r}"))

    def declare(channel: Any) -> None:
        channel.queue_declare(QUEUE, durable=True, callback=lambda _: made.set_result(channel))

    AsyncioConnection(
        pika.ConnectionParameters("127.0.0.1", port),
        on_open_callback=lambda connection: connection.channel(on_open_callback=declare),
        on_open_error_callback=failed,
    )
    return await asyncio.wait_for(made, ANSWER_S)
