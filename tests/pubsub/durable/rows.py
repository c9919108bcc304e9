"""A log in memory under the state machine, and a naive topic beside it: a list of events."""

from pluribus.core.errors import Damaged
from pluribus.pubsub.durable import commands
from pluribus.pubsub.durable.batch import Batch, pack
from pluribus.pubsub.durable.machine import Topics
from pluribus.pubsub.durable.reading import Reading


class MemoryRows:
    """Rows of commands. ``start`` moves up as the machine says what it still reads."""

    def __init__(self):
        self.rows = []
        self.start = 0
        self.machine = Topics()
        self.reading = Reading(self.machine, self.read)

    def append(self, *held):
        """One row; what became of each command."""
        self.rows.append(list(held))
        return [self.machine.apply(len(self.rows) - 1, place, command) for place, command in enumerate(held)]

    def do(self, *wanted):
        return self.append(*map(commands.encode, wanted))

    def read(self, start, bytes_max):
        if start < self.start:
            raise Damaged(f"row {start} was trimmed")
        found, size = [], 0
        for row in range(start, len(self.rows)):
            found.append((row, self.rows[row]))
            size += sum(map(len, self.rows[row]))
            if size >= bytes_max:
                break
        return found

    def trim(self):
        first = self.machine.first_row()
        self.start = len(self.rows) if first is None else first

    def reopen(self):
        state = self.machine.snapshot()
        self.machine = Topics()
        self.machine.restore(state)
        self.reading = Reading(self.machine, self.read)
        assert self.machine.snapshot() == state

    def events(self, topic, start, stop, bytes_max=1 << 20):
        """(offset, body) of a range, read in as many steps as it takes."""
        found = []
        at = start
        while at < stop:
            pieces = self.reading.read(topic, at, stop, bytes_max)
            if not pieces:
                break
            for offset, packed in pieces:
                batch = Batch(packed, offset).cut(at, stop)
                found += zip(batch.offsets.tolist(), batch.decoded(), strict=True)
                at = batch.end
        return found


def batch(topic, session, first, bodies, time=1_000, sender=7):
    return pack(topic, session, first, sender, 0, [time] * len(bodies), bodies)
