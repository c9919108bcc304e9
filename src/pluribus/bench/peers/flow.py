"""The measurement of every peer: one publisher and some subscribers, each in a process of its own.

Most peers lose messages when the publisher is faster than a subscriber. So the harness keeps a window for them, on
counters in shared memory that cost a message nothing: the publisher rests while the slowest subscriber is too far
behind. Nothing is lost, and a run in which something is lost fails.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from time import perf_counter, sleep
from typing import Any

from ...core.errors import PluribusError
from ..processes import Role, Together, measure
from . import Receiver, Sender, peer

_context = multiprocessing.get_context("spawn")

BLOCK = 64
"""Messages between two looks at the counters."""
WINDOW_MESSAGES, WINDOW_BYTES = 16_384, 8 << 20
REST_S = 0.0002
GREET_S = 0.005
WARM_S = 0.4
HEARD_S = 30.0
LOST_S = 5.0
"""Seconds without a message after which missing ones are taken for lost."""
WARM_ROUNDS = 100
STILL_LOOKS = 25
"""How often in a row a reader must find nothing before round trips begin: a late answer would be taken for the next
one."""

PLANNED = 0
"""The place of the number of messages in this part; 0 until it is known. The further numbers of the board are the
counts of the subscribers."""


def window_of(size: int) -> int:
    return max(2 * BLOCK, min(WINDOW_MESSAGES, WINDOW_BYTES // size))


def rate(name: str, receivers: int, size: int, seconds: float) -> float:
    """Messages a second that every subscriber's program has, from the first send to the last receipt."""
    board = _context.RawArray("q", 1 + receivers)
    with peer(name).endpoints() as (there, _):
        shape = (name, there, board)
        roles: list[Role] = [(_listen, (*shape, index)) for index in range(1, receivers + 1)]
        roles.append((_publish, (*shape, size, seconds)))
        answers = measure(roles, receivers + 1)
    started = next(at for kind, at, _ in answers if kind == "started")
    finished = [at for kind, at, _ in answers if kind == "finished"]
    count = next(count for kind, _, count in answers if kind == "started")
    return float(count / (max(finished) - started))


def trips(name: str, rounds: int, size: int, pace_s: float) -> list[float]:
    """Round trips in µs, one at a time at a steady pace."""
    over = _context.RawValue("b", 0)
    with peer(name).endpoints() as ways:
        shape = (name, *ways, over, size)
        roles: list[Role] = [(_echo, shape), (_ping, (*shape, rounds, pace_s))]
        return list(measure(roles, 1)[0])


def _publish(together: Together, name: str, endpoint: str, board: Any, size: int, seconds: float) -> None:
    sender, payload, window = peer(name).sender(endpoint), b"x" * size, window_of(size)

    def greet() -> None:
        sender.send(payload, 1)
        sender.flush()
        sleep(GREET_S)

    _until(lambda: min(board[1:]) > 0, greet)
    together.wait()  # everybody hears: no more of these
    together.wait()  # and has thrown them away
    sent, started = 0, perf_counter()
    while perf_counter() - started < WARM_S:
        _send_block(sender, payload, sent, board, window)
        sent += BLOCK
    sender.flush()
    board[PLANNED] = sent
    count = max(int(sent / (perf_counter() - started) * seconds) // BLOCK * BLOCK, BLOCK)
    together.wait()  # everybody has all of the warm-up
    board[PLANNED] = count
    together.wait()
    started = perf_counter()
    for sent in range(0, count, BLOCK):
        _send_block(sender, payload, sent, board, window)
    sender.flush()
    together.answer(("started", started, count))
    together.wait()
    sender.close()


def _send_block(sender: Sender, payload: bytes, sent: int, board: Any, window: int) -> None:
    while sent + BLOCK - min(board[1:]) > window:
        sender.flush()
        sleep(REST_S)
    sender.send(payload, BLOCK)


def _listen(together: Together, name: str, endpoint: str, board: Any, index: int) -> None:
    receiver = peer(name).receiver(endpoint)
    _until(lambda: board[index], lambda: _take(receiver, board, index, 0, 1))
    together.wait()
    while receiver.take(BLOCK):
        pass
    board[index] = 0
    together.wait()
    _take_all(receiver, board, index)
    together.wait()
    board[index] = 0
    together.wait()
    _take_all(receiver, board, index)
    together.answer(("finished", perf_counter(), 0))
    together.wait()
    receiver.close()


def _take_all(receiver: Receiver, board: Any, index: int) -> None:
    """Take all messages of the present part, however many there are."""
    got, last_at = 0, perf_counter()
    while not board[PLANNED] or got < board[PLANNED]:
        some = _take(receiver, board, index, got, BLOCK)
        got += some
        if some:
            last_at = perf_counter()
        elif perf_counter() - last_at > LOST_S:
            raise PluribusError(f"{board[PLANNED] - got} messages were lost: the peer's settings do not keep them")


def _take(receiver: Receiver, board: Any, index: int, before: int, most: int) -> int:
    got = receiver.take(most)
    if got:
        board[index] = before + got
    return got


def _until(condition: Callable[[], Any], step: Callable[[], Any]) -> None:
    until = perf_counter() + HEARD_S
    while not condition():
        if perf_counter() > until:
            raise PluribusError(f"a subscriber heard nothing for {HEARD_S:g} s: is the peer's server there?")
        step()


def _still(receiver: Receiver) -> None:
    """Wait until no message has come for a while."""
    looks = 0
    while looks < STILL_LOOKS:
        looks = 0 if receiver.take(BLOCK) else looks + 1


def _echo(together: Together, name: str, there: str, back: str, over: Any, size: int) -> None:
    made = peer(name)
    sender, receiver, payload = made.sender(back), made.receiver(there), b"x" * size
    together.wait()
    while not over.value:
        if receiver.take(1):
            sender.send(payload, 1)
    sender.close()
    receiver.close()


def _ping(
    together: Together, name: str, there: str, back: str, over: Any, size: int, rounds: int, pace_s: float
) -> None:
    made = peer(name)
    sender, receiver, payload = made.sender(there), made.receiver(back), b"x" * size
    together.wait()

    def answered() -> int:
        sender.send(payload, 1)
        return receiver.take(1)

    _until(answered, lambda: None)
    _still(receiver)
    found = []
    for _ in range(WARM_ROUNDS + rounds):
        started = perf_counter()
        sender.send(payload, 1)
        _until(lambda: receiver.take(1), lambda: None)
        found.append((perf_counter() - started) * 1e6)
        sleep(max(0.0, pace_s - (perf_counter() - started)))
    late = receiver.take(BLOCK)
    over.value = 1
    if late:
        raise PluribusError(f"{late} answers came after the last round trip: others were taken for theirs")
    together.answer(found[WARM_ROUNDS:])
    sender.close()
    receiver.close()
