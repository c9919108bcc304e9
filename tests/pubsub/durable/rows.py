"""A log in memory under the host and its topics, and a naive topic beside it: a list of events."""

from pluribus.core.errors import Damaged
from pluribus.group.host import Host
from pluribus.group.host.forwarding import unpack
from pluribus.group.host.host import HOST
from pluribus.pubsub.durable import commands
from pluribus.pubsub.durable.batch import StoredBatch, pack
from pluribus.pubsub.durable.machine import TopicsMachine
from pluribus.pubsub.durable.reading import Reading

TOPICS = 1


class MemoryRows:
    """Rows of commands with a host on them. Rows of which nothing is needed become hollow, or are gone."""

    applied_voters = (1,)
    awaits = True

    def __init__(self):
        self.rows = []
        self.machines = []
        self.start = 0
        self.row, self.machine, self.time_us = -1, TOPICS, 0
        self.index = 0
        self.on_commit = None
        self.host = self._host()

    def _host(self):
        return Host(self, {TopicsMachine.kind: TopicsMachine}, builtin=(TopicsMachine.kind,))

    def halt(self, why):
        raise AssertionError(why)

    @property
    def topics(self):
        return self.host.named("topics").machine

    @property
    def reading(self):
        return Reading(self.topics, self.read, self.read_row)

    def append(self, *held, machine=TOPICS):
        """One row; what became of each command."""
        self.rows.append(list(held))
        self.machines.append(machine)
        self.row, self.machine = len(self.rows) - 1, machine
        first = self.index
        self.index += len(held)
        self.on_commit(first, held)
        return self.host.take_outcomes(first, len(held))

    def do(self, *wanted):
        return self.append(*map(commands.encode, wanted))

    def tick(self, time_us):
        """Time goes by; what is due is done."""
        self.time_us = max(self.time_us, time_us)
        self.topics.ground.now_us = self.time_us
        self.topics.tick()

    def read(self, start, bytes_max):
        if start < self.start:
            raise Damaged(f"row {start} was trimmed")
        found, size = [], 0
        for row in range(start, len(self.rows)):
            found.append((row, self.rows[row] if self.machines[row] == TOPICS else []))
            size += sum(map(len, self.rows[row]))
            if size >= bytes_max:
                break
        return found

    def read_row(self, at):
        if at < self.start:
            raise Damaged(f"row {at} was trimmed")
        return self.machines[at] == HOST, self.rows[at]

    def trim(self):
        """What nobody needs is gone."""
        space = self.host.space
        self.start = max(self.start, space.first_row)
        for rows in space.dead_rows(self.start, len(self.rows)):
            for row in rows:
                self.rows[row] = []

    def forward(self):
        """Everything that is needed and does not stand in the last extent is written once more."""
        stop = self.host.space.last_extent if self.rows else 0
        own = {row: self.rows[row] for row in range(self.start, stop) if self.machines[row] == TOPICS}
        loose = {}
        for row in range(self.start, stop):
            if self.machines[row] == HOST:
                unpack(row, self.rows[row], loose)
        wanted = self.topics.forward(own, loose.get(TOPICS, {}))
        if wanted:
            self.append(*wanted)

    def state(self):
        names, _ = self.host.freeze(())
        host = self.host
        parts = [(name, host.whole_part(name)) for name in names]
        host.thaw(False)
        return parts

    def reopen(self):
        state = self.state()
        self.host = self._host()
        self.host.restore(self.index, state)
        assert self.state() == state

    def events(self, topic, start, stop, bytes_max=1 << 20):
        """(offset, body) of a range, read in as many steps as it takes."""
        found = []
        at = start
        reading = self.reading
        while at < stop:
            pieces, behind = reading.read(topic, at, stop, bytes_max)
            if behind == at:
                break
            for offset, packed in pieces:
                batch = StoredBatch(packed, offset).cut(at, stop)
                found += zip(batch.offsets.tolist(), batch.decoded(), strict=True)
            at = behind
        return found


def batch(topic, session, first, bodies, time=1_000, sender=7, keys=()):
    headers = [None if key is None else {"key": key} for key in keys]
    return pack(topic, session, first, sender, 0, [time] * len(bodies), bodies, headers)
