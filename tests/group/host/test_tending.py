"""What a keeper does for its machines as time goes by, where something is wrong: damage, a store that is not sure, a
process that stood still."""

from random import Random

import msgspec
import pytest

from pluribus.core.errors import Overflow, Uncertain
from pluribus.core.ports import Replace
from pluribus.group.host.host import HOST, Host
from pluribus.group.host.space import LogExtents
from pluribus.group.host.tending import HOLLOW_ROWS, LOOK_S, Tending
from pluribus.group.host.words import DONE, Create, encode
from pluribus.group.keepers import Keeper, Settings
from pluribus.group.keepers.rows import COMMANDS
from pluribus.sim.machinery.jobs import LEASE_US, Attach, Jobs, Put, Settle, Want
from tests.group.keepers.cluster import Cluster, KernelClock, Port

SMALL = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=1_500, slack_rows=2)
LEASE_S = LEASE_US / 1e6
_encode = msgspec.msgpack.encode


class SmallSpace(LogExtents):
    extent_bytes = 500
    dead_bytes_max = 1_000


class Hosts(Cluster):
    """One keeper with a host for jobs."""

    code = Jobs

    def __init__(self):
        super().__init__(1, SMALL)

    def start(self, number):
        clock = KernelClock(self, number)
        self.keeper = keeper = self.keepers[number] = Keeper(
            "log",
            self.disks[number],
            Port(self, number),
            clock,
            Random(f"{number}/{self.lives[number]}"),
            self.settings,
            self.reports.append,
            lambda: 1_000 + self.kernel.now,
        )
        self.host = keeper.seat.state = Host(keeper, {"jobs": self.code}, (), SmallSpace)
        self.tending = Tending(self.host, keeper)
        self.host.on_applied = self.tending.applied
        keeper.keep_rows(0)
        keeper.start()
        self.tending.start()
        return keeper

    def ordered(self, command, machine=1):
        """What became of it."""
        outcomes = []

        def done(index, error):
            assert error is None, error
            outcomes.extend(self.host.take_outcomes(index, 1))

        self.keeper.submit_many([command if machine == HOST else _encode(command)], done, machine)
        self.until(lambda: outcomes)
        return outcomes[0]

    def begun(self):
        self.found(0)
        self.until(lambda: self.host.announced(self.keeper.id))
        assert self.ordered(encode(Create("jobs", "jobs", 1)), HOST).status == DONE
        return self

    @property
    def jobs(self):
        return self.host.machines[1].machine


def worked(hosts, jobs):
    """Jobs are put and settled by one consumer, but for every eighth, which it keeps."""
    _, epoch = hosts.ordered(Attach(1, 1))
    hosts.ordered(Want(1, epoch, 1, 60_000))
    for job in jobs:
        hosts.ordered(Put(job, b"x" * 100))
        if job % 8:
            hosts.ordered(Settle(1, epoch, job))
        hosts.keeper.alive([(1, 1)])


def test_a_row_that_nobody_can_repair_does_not_keep_the_space_of_all_others():
    hosts = Hosts().begun()
    worked(hosts, range(40))
    row = hosts.jobs.held[0].row
    assert hosts.keeper.ledger.snapshot.row > row
    hosts.crash(0)
    log = hosts.disks[0]._platter.logs["log/log"]
    log.rows[row - log.start] = None
    hosts.start(0)
    hosts.until(hosts.leader)
    worked(hosts, range(40, 400))
    hosts.until(lambda: hosts.host.space.bounded)
    assert hosts.keeper.ledger.scars == {row} and hosts.tending.forwarded_bytes
    assert sum("damaged or missing" in report for report in hosts.reports) < 10, "it is said, and not for ever"


def test_a_store_that_is_not_sure_is_looked_after_all_the_same():
    hosts = Hosts().begun()
    hosts.crash(0)
    hosts.disks[0]._platter.logs["log/log"].sure = False
    hosts.start(0)
    hosts.until(hosts.leader)
    assert not hosts.keeper.whole, "it may have lost something that nobody can name, and nobody else has it"
    _, epoch = hosts.ordered(Attach(7, 7))
    hosts.ordered(Want(7, epoch, 1, 1))
    hosts.ordered(Put(1, b"x"))
    assert set(hosts.jobs.held) == {1}
    hosts.until(lambda: not hosts.jobs.held, 3 * LEASE_S)


def test_time_in_which_the_leader_stood_still_is_nobodys_silence():
    hosts = Hosts().begun()
    _, epoch = hosts.ordered(Attach(7, 7))
    hosts.ordered(Want(7, epoch, 1, 1))
    hosts.ordered(Put(1, b"x"))
    hosts.run(LEASE_S / 2)
    hosts.keeper.alive([(1, 7)])
    look, hosts.tending._look = hosts.tending._look, lambda: None  # its process is stopped
    hosts.tending._timer.cancel()
    hosts.run(3 * LEASE_S)
    hosts.tending._look = look
    look()  # it goes on, and has not read yet what was said meanwhile
    hosts.run(LEASE_S / 4)
    assert set(hosts.jobs.held) == {1}
    hosts.keeper.alive([(1, 7)])
    hosts.run(LEASE_S / 2)
    assert set(hosts.jobs.held) == {1}
    hosts.until(lambda: not hosts.jobs.held, 2 * LEASE_S)


def test_writing_forward_keeps_up_with_what_dies():
    hosts = Hosts().begun()
    forward, hosts.tending._forward = hosts.tending._forward, lambda: None
    worked(hosts, range(600))
    space = hosts.host.space
    poor = len(space.poorest(hosts.keeper.ledger.snapshot.row))
    assert poor > 60 and not space.bounded
    began = hosts.kernel.now
    hosts.tending._forward = forward
    hosts.until(lambda: space.bounded)
    assert hosts.kernel.now - began < poor * LOOK_S / 4, "not one extent a look"


def test_much_that_dies_at_once_is_freed_in_small_steps_without_a_pause():
    """Reading rows beside a write that changes others waits for the disk, and so would the loop."""
    hosts = Hosts().begun()
    hollow, hosts.tending._hollow = hosts.tending._hollow, lambda: None
    worked(hosts, range(1, 900))
    asked, reads = [], []
    ask, ledger = hosts.keeper.hollow, hosts.keeper.ledger

    def watched(rows):
        found = ask(rows)
        asked.append((hosts.kernel.now, len(rows), ledger.hollowing))
        return found

    def read(log, start, stop, inner=hosts.disks[0].read):
        reads.append(ledger.hollowing)
        return inner(log, start, stop)

    hosts.tending._dead.clear()
    hosts.keeper.hollow, hosts.tending._hollow = watched, hollow
    hosts.disks[0].read = read
    hosts.run(2 * LOOK_S)
    assert hosts.tending.hollow_rows > 4 * HOLLOW_ROWS and not any(reads)
    assert all(count <= HOLLOW_ROWS for _, count, _ in asked)
    assert sum(busy for _, _, busy in asked) >= 4, "one step after another, not one a look"


def left_whole(hosts):
    """Rows that are still there, although nothing of their extent is needed."""
    ledger, space = hosts.keeper.ledger, hosts.host.space
    heads = {at: ledger.head_at(at) for rows in space.dead_rows(0, ledger.snapshot.row) for at in rows}
    return [at for at, head in heads.items() if at >= ledger.start and head.kind == COMMANDS and not head.hollow]


def test_rows_that_a_full_disk_did_not_free_are_freed_when_it_has_room_again():
    hosts = Hosts().begun()
    hollow, hosts.tending._hollow = hosts.tending._hollow, lambda: None
    worked(hosts, [8, *(job for job in range(9, 60) if job % 8)])
    hosts.until(lambda: len(left_whole(hosts)) > 20)
    write, refused = hosts.disks[0].write, []

    def writing(changes, done):
        hosts.disks[0].full = not refused and any(isinstance(change, Replace) for change in changes)
        if hosts.disks[0].full:
            refused.append(len(changes))
        write(changes, done)
        hosts.disks[0].full = False

    hosts.disks[0].write = writing
    hosts.tending._dead.clear()
    hosts.tending._hollow = hollow
    hosts.until(lambda: refused)
    assert refused[0] > 20
    hosts.until(lambda: not left_whole(hosts), 4 * LOOK_S)


class Searching(Jobs):
    """Looks for a job, and finds one at once."""

    searched = False

    @property
    def busy(self):
        return not self.searched

    def chores(self):
        self.searched = True
        return [_encode(Put(7, b"found"))]

    def search_again(self):
        self.searched = False


@pytest.mark.parametrize("how", ["there is no room", "nobody knows what became of it"])
def test_what_a_search_found_and_a_keeper_could_not_order_is_searched_for_again(how, monkeypatch):
    submit_many, lost = Keeper.submit_many, []

    def losing(keeper, commands, done, machine=0):
        if not machine or lost:
            submit_many(keeper, commands, done, machine)
            return
        lost.append(commands)
        if how == "there is no room":
            raise Overflow("too much is under way")
        done(-1, Uncertain("the keepers changed their leader"))

    monkeypatch.setattr(Keeper, "submit_many", losing)
    monkeypatch.setattr(Hosts, "code", Searching)
    hosts = Hosts().begun()
    hosts.until(lambda: lost)
    hosts.ordered(Put(1, b"x"))
    hosts.until(lambda: 7 in hosts.jobs.jobs)
