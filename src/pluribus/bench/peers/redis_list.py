"""A list of Redis between two processes: ``LPUSH`` and ``BRPOP``, one at a time or pipelined."""

from __future__ import annotations

import subprocess
import sys
from time import perf_counter
from typing import Any

from .redis_server import _arguments, _client
from .servers import server

NAME = "pluribus-bench"


def listed(rounds: int, at_once: int) -> float:
    """Items a second from this process to another process, which pops them."""
    with server("redis-server", _arguments) as address:
        client = _client(address)
        arguments = [sys.executable, "-m", __name__, address, str(rounds * at_once), str(at_once)]
        with subprocess.Popen(arguments) as popping:
            client.brpop("ready")
            began = perf_counter()
            for number in range(rounds):
                if at_once == 1:
                    client.lpush(NAME, number)
                else:
                    pipeline = client.pipeline(transaction=False)
                    for _ in range(at_once):
                        pipeline.lpush(NAME, number)
                    pipeline.execute()
            client.brpop("done")
            took_s = perf_counter() - began
            popping.wait()
    return rounds * at_once / took_s


def pop(address: str, count: int, at_once: int) -> None:
    """Run the other process."""
    client = _client(address)
    client.lpush("ready", 1)
    while count:
        count -= 1 if at_once == 1 else _popped(client, at_once)
        if at_once == 1:
            client.brpop(NAME)
    client.lpush("done", 1)


def _popped(client: Any, at_once: int) -> int:
    pipeline = client.pipeline(transaction=False)
    for _ in range(at_once):
        pipeline.rpop(NAME)
    return sum(found is not None for found in pipeline.execute())


if __name__ == "__main__":
    pop(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
