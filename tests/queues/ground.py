"""What a host would give a queue: time, streams, and the count of bytes that are still needed of each row."""

from collections import Counter

import msgspec

from pluribus.group.host.machine import Ground
from pluribus.group.once import OrderedSessions
from pluribus.queues import batch, words
from pluribus.queues.machine import Queue


class Bench:
    """A queue, and its log in memory."""

    def __init__(self):
        self.rows = {}
        self.live = Counter()
        self.streams = OrderedSessions(1_000, 64)
        self.queue = Queue(Ground(1, self._release, lambda: 0, self.streams))
        self.row = 0
        self.told, self.epochs = {}, {}
        self.queue.ground.now_us = self.now_us = 1_000_000_000

    def _release(self, row, size):
        assert 0 <= size <= self.live[row], f"row {row} releases {size} of {self.live[row]}"
        self.live[row] -= size

    def apply(self, command, place=0):
        data = command if isinstance(command, bytes) else words.encode(command)
        self.row += 1
        self.rows[self.row] = [data]
        self.live[self.row] += len(data)
        self.queue.ground.now_us = self.now_us
        outcome = self.queue.apply(self.row, place, data)
        if isinstance(command, words.Attach) and outcome.status == words.DONE:
            self.epochs.setdefault(command.consumer, []).append(outcome.number)
        self._forget()
        return outcome

    def _forget(self):
        for number in set(self.told) - set(self.queue.demands.consumers):
            del self.told[number]

    def expire(self, owners):
        self.queue.ground.now_us = self.now_us
        self.queue.expire(owners)
        self._forget()

    def epoch(self, number, which=0):
        """Of a consumer's attachments, this one."""
        return self.epochs[number][which]

    def tick(self):
        self.queue.ground.now_us = self.now_us
        self.queue.tick()

    def ticks(self):
        """Until nothing is due."""
        while (due := self.queue.due_us()) is not None and due <= self.now_us:
            self.tick()

    def parts(self):
        return [(name, self.queue.encode_part(name)) for name in self.queue.part_names()]

    def again(self):
        """The queue, restored from its parts."""
        parts = self.parts()
        news = self.queue.demands.news
        self.queue = Queue(self.queue.ground)
        self.queue.restore(iter(parts))
        self.queue.demands.news = news
        assert self.parts() == parts
        self.queue.validate()

    def body(self, thing):
        """Of a message, from the log."""
        ((_, row, place, piece, _),) = self.queue.ask(words.encode(words.Where([thing])))
        one = self.queue.pieces(self.rows[row][place])[piece]
        return bytes(batch.bodies_of(one, batch.head_of(one))[0])

    def news(self):
        """Assignments since the last time: consumer, message, delivery."""
        found = []
        for number in self.queue.demands.news:
            consumer = self.queue.demands.consumers.get(number)
            if consumer is None:
                continue
            given = self.queue.demands.given(number, consumer.epoch, self.told.get(number, 0)) or []
            found += [(number, thing, held.delivery) for thing, held in given]
            self.told[number] = consumer.given
        self.queue.demands.news.clear()
        return found


class Sender:
    """Numbers what it sends."""

    def __init__(self, session=7):
        self.session = session
        self.next = 1

    def pack(self, bodies, **columns):
        if columns.get("properties"):
            columns["properties"] = [msgspec.msgpack.encode(one) if one else b"" for one in columns["properties"]]
        extra = batch.BatchExtra(**columns) if columns else None
        packed = batch.pack(self.session, self.next, 0, 0, bodies, extra)
        self.next += len(bodies)
        return packed
