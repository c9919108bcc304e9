"""The shared medium: one channel, on which a node receives everything that is sent in its range.

Theory of operation
-------------------
A frame takes its time on the air: a preamble, and its bytes at ``RATE_BIT_S``.
Two frames that overlap at a node are both lost there (a *collision*), and a node that sends hears nothing. A node that
wants to send listens first; if another node is sending, it waits until that one is done and then for a random number of
slots. Two things remain, as in 802.11: *hidden* nodes, which do not hear each other and meet at a third one, and nodes
that begin within the same slot, which cannot have heard each other yet. A frame that comes through is lost with the
probability ``loss`` at each receiver.

A *broadcast* is sent once. For a *unicast* frame the sender first asks its receiver whether the air is free there (RTS
and CTS of 802.11): if so, all nodes that hear the receiver keep silent until the frame is over, hidden nodes too; if
the receiver hears another node, or is gone, it does not answer, and only the question was sent. The frame is
acknowledged, and tried again up to ``RETRIES`` times; then its sender is told that it failed. The receiver's answers
are part of the frame's air time and cannot get lost alone. Every attempt is a transmission and is counted, a question
without an answer as well.

Energy: the sender pays for the air time, and so does everybody in range, whether the frame came through, collided or
was for somebody else. A collision therefore costs what a reception costs, and brings nothing.

Bounds: a node holds ``QUEUE_MAX`` frames that wait for the air; more are dropped and counted.

Left out: signal strength (range is a circle), capture, propagation delay, movement during a frame (two milliseconds).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Protocol

import msgspec

from .places import Places

RATE_BIT_S = 2_000_000.0
PREAMBLE_S = 0.000_25
"""Preamble, header of the physical layer, and the pause before a frame."""
SLOT_S = 0.000_02
BACK_OFF_SLOTS = 32
MAC_BYTES = 28
ASK_BYTES, ANSWERS_BYTES = 20, 28
"""Is the air free at your place? It is; and: I have your frame."""
ASK_S = PREAMBLE_S + ASK_BYTES * 8 / RATE_BIT_S
RETRIES = 7
QUEUE_MAX = 128
SEND_W, HEAR_W = 1.4, 1.0


class Word(msgspec.Struct, frozen=True):
    """What one frame carries. ``control`` and ``carried`` are its size: bytes of the protocol, bytes of users."""

    @property
    def control(self) -> int:
        raise NotImplementedError

    @property
    def carried(self) -> int:
        return 0


class Listener(Protocol):
    """The receiver of frames at a node."""

    def receive(self, sender: int, word: Any) -> None: ...


class Counted(msgspec.Struct):
    """What happened on the air."""

    transmissions: int = 0
    data_transmissions: int = 0
    """Of those, the ones that carried bytes of users."""
    control_bytes: int = 0
    """All that was sent but the bytes of users: headers of data too, so that nothing hides there."""
    carried_bytes: int = 0
    received: int = 0
    collided: int = 0
    """Receptions that a collision spoilt."""
    lost: int = 0
    dropped: int = 0
    failed: int = 0
    """Unicast frames that were given up."""
    energy_j: float = 0.0


class Outgoing:
    """A frame that waits, or is on the air."""

    __slots__ = ("answered", "attempts", "control", "failed", "near", "spoilt", "to", "took_s", "word")

    def __init__(self, word: Word, to: int, failed: Callable[[], None] | None) -> None:
        self.word = word
        self.to = to
        """The receiver; -1: every node in range."""
        self.failed = failed
        self.attempts = 0
        self.near: list[int] = []
        self.spoilt: set[int] | None = None
        """Nodes that cannot receive it."""
        self.control = word.control + MAC_BYTES + (ASK_BYTES + ANSWERS_BYTES if to >= 0 else 0)
        self.took_s = PREAMBLE_S + (self.control + word.carried) * 8 / RATE_BIT_S
        self.answered = to < 0
        """True if this attempt is the whole frame."""


class Air:
    """Virtual time and the medium. ``join`` the nodes, then ``run``."""

    def __init__(self, places: Places, random: Random, *, loss: float = 0.0) -> None:
        self.places = places
        self.loss = loss
        self.now = 0.0
        self.counted = Counted()
        self._random = random.random
        count = places.count
        self._listeners: list[Listener | None] = [None] * count
        self._queues: list[deque[Outgoing]] = [deque() for _ in range(count)]
        self._busy = [False] * count
        """True if the node has a frame that it tries to send."""
        self._heard_since = [0.0] * count
        self._heard_until = [-1.0] * count
        self._heard_last: list[Outgoing | None] = [None] * count
        self._silent_until = [-1.0] * count
        """Somebody near is to receive a frame that this node may not hear."""
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0

    def join(self, node: int, listener: Listener) -> None:
        self._listeners[node] = listener

    # Time

    def later(self, delay_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call this after a while. It cannot be called off: a node that has changed its mind looks when it is
        called."""
        self._order += 1
        heappush(self._heap, (self.now + delay_s, self._order, call, arguments))

    def run(self, until: float) -> None:
        """Let time pass."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, call, arguments = heappop(heap)
            call(*arguments)
        self.now = until

    # Sending

    def broadcast(self, node: int, word: Word, within_s: float = 0.0) -> None:
        """Send to all nodes in range, after a random part of ``within_s``."""
        outgoing = Outgoing(word, -1, None)
        if within_s:
            self.later(self._random() * within_s, self._queue, node, outgoing)
        else:
            self._queue(node, outgoing)

    def unicast(self, node: int, to: int, word: Word, failed: Callable[[], None] | None = None) -> None:
        """Send to one node in range. ``failed`` is called if it acknowledged no attempt."""
        self._queue(node, Outgoing(word, to, failed))

    def waiting(self, node: int) -> int:
        """Frames of this node that are not on the air yet."""
        return len(self._queues[node])

    def _queue(self, node: int, outgoing: Outgoing) -> None:
        queue = self._queues[node]
        if len(queue) >= QUEUE_MAX:
            self.counted.dropped += 1
            if outgoing.failed is not None:
                self.later(0.0, outgoing.failed)
            return
        queue.append(outgoing)
        if not self._busy[node]:
            self._busy[node] = True
            self._listen(node)

    def _back_off_s(self) -> float:
        return int(self._random() * BACK_OFF_SLOTS + 1) * SLOT_S

    def _listen(self, node: int) -> None:
        """Begin, unless another node is heard. One that began within this slot is not."""
        now, until, silent = self.now, self._heard_until[node], self._silent_until[node]
        if silent > now or (until > now and now - self._heard_since[node] >= SLOT_S):
            until = max(until, silent)
            self._order += 1
            heappush(self._heap, (until + self._back_off_s(), self._order, self._listen, (node,)))
        else:
            self._begin(node)

    def _begin(self, node: int) -> None:
        outgoing = self._queues[node].popleft()
        now = self.now
        outgoing.spoilt = None
        outgoing.attempts += 1
        near = outgoing.near = self.places.near(node, now)
        if outgoing.to >= 0:
            self._ask(outgoing)
        end = now + (outgoing.took_s if outgoing.answered else ASK_S)
        heard_until, heard_last, heard_since = self._heard_until, self._heard_last, self._heard_since
        if heard_until[node] > now:  # it was receiving, and does no more
            _spoil(heard_last[node], node)
        else:
            heard_since[node] = now
        heard_until[node] = max(heard_until[node], end)
        heard_last[node] = outgoing
        for other in near:
            if heard_until[other] > now:
                _spoil(outgoing, other)
                _spoil(heard_last[other], other)
                if end > heard_until[other]:
                    heard_until[other] = end
            else:
                heard_since[other] = now
                heard_until[other] = end
            heard_last[other] = outgoing
        self._count(outgoing, len(near))
        self._order += 1
        heappush(self._heap, (end, self._order, self._end, (node, outgoing)))

    def _ask(self, outgoing: Outgoing) -> None:
        """Is the air free at the receiver? Then all nodes near it keep silent."""
        to, now = outgoing.to, self.now
        free = to in outgoing.near and self._heard_until[to] <= now and self._silent_until[to] <= now
        outgoing.answered = free
        if free:
            end = now + outgoing.took_s
            silent = self._silent_until
            for other in self.places.near(to, now):
                if end > silent[other]:
                    silent[other] = end

    def _count(self, outgoing: Outgoing, near: int) -> None:
        counted = self.counted
        counted.transmissions += 1
        if not outgoing.answered:
            counted.control_bytes += ASK_BYTES
            counted.energy_j += ASK_S * (SEND_W + HEAR_W * near)
            return
        counted.control_bytes += outgoing.control
        carried = outgoing.word.carried
        if carried:
            counted.data_transmissions += 1
            counted.carried_bytes += carried
        counted.energy_j += outgoing.took_s * (SEND_W + HEAR_W * near)

    def _end(self, node: int, outgoing: Outgoing) -> None:
        if self._queues[node]:
            self.later(self._back_off_s(), self._listen, node)
        else:
            self._busy[node] = False
        if outgoing.to >= 0:
            self._end_unicast(node, outgoing)
            return
        word, loss, random, counted, listeners = (
            *(outgoing.word, self.loss, self._random, self.counted, self._listeners),
        )
        spoilt = outgoing.spoilt or ()
        for other in outgoing.near:
            if other in spoilt:
                counted.collided += 1
            elif loss and random() < loss:
                counted.lost += 1
            else:
                counted.received += 1
                listener = listeners[other]
                if listener is not None:
                    listener.receive(node, word)

    def _end_unicast(self, node: int, outgoing: Outgoing) -> None:
        to, counted = outgoing.to, self.counted
        counted.collided += len(outgoing.spoilt or ())
        if outgoing.answered and to not in (outgoing.spoilt or ()):
            if not self.loss or self._random() >= self.loss:
                counted.received += 1
                listener = self._listeners[to]
                if listener is not None:
                    listener.receive(node, outgoing.word)
                return
            counted.lost += 1
        if outgoing.attempts <= RETRIES:
            wait_s = self._back_off_s() * 2 ** min(outgoing.attempts, 5)
            self.later(wait_s, self._queue, node, outgoing)
        else:
            counted.failed += 1
            if outgoing.failed is not None:
                outgoing.failed()


def _spoil(outgoing: Outgoing | None, node: int) -> None:
    """This node does not hear that frame. If the frame is over, that says nothing."""
    if outgoing is not None:
        if outgoing.spoilt is None:
            outgoing.spoilt = {node}
        else:
            outgoing.spoilt.add(node)
