"""Rows of several machines: the leader's time, hollow rows, snapshots at marks, and states that are compared."""

import pytest

from pluribus.core.errors import BadInput
from pluribus.group.keepers import Settings
from pluribus.group.keepers.rows import COMMANDS, MARK, encode_commands, head_of, hollow_of
from tests.group.keepers.cluster import QUICK, Cluster

SMALL = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=500, words_bytes=200, slack_rows=2)


def heads(cluster, number):
    ledger = cluster.keepers[number].ledger
    return [ledger.head_at(at) for at in range(ledger.start, ledger.end)]


def is_command(keeper, at):
    return keeper.ledger.head_at(at).kind == COMMANDS


def kept(keeper):
    """Rows stay, as for owners who read them again."""
    keeper.keep_rows(0)


def test_commands_of_several_machines_are_rows_of_their_own_in_one_write():
    cluster = Cluster(1).found(0)
    keeper = cluster.keepers[0]
    seen = []
    commit = keeper.on_commit
    keeper.on_commit = lambda first, commands: (seen.append((keeper.machine, commands)), commit(first, commands))
    before = keeper.ledger.end
    writes = []
    write = cluster.disks[0].write
    cluster.disks[0].write = lambda changes, done: (writes.append(changes), write(changes, done))
    for machine in (1, 2, 1):
        keeper.submit_many([b"of %d" % machine], lambda index, error: None, machine)
    cluster.run(0.1)
    assert keeper.ledger.end - before == 2 and len(writes) == 1
    assert seen == [(1, [b"of 1", b"of 1"]), (2, [b"of 2"])]


def test_rows_carry_a_time_that_goes_on_with_the_next_leader():
    cluster = Cluster(3).found(0, 1, 2)
    for keeper in cluster.keepers.values():
        keeper.seat.wall = lambda: 1_000.0
    cluster.write(b"a")
    first = cluster.leader()
    cluster.crash(cluster.number_of(first))
    cluster.until(lambda: cluster.leader() is not None)
    cluster.write(b"b")
    number = cluster.number_of(cluster.leader())
    times = [head.time_us for head in heads(cluster, number) if head.kind == COMMANDS]
    assert times == sorted(times) and times[0] > 0
    assert cluster.keepers[number].time_us == times[-1]


def test_a_hollow_row_is_a_head_that_says_so():
    row = encode_commands(7, 40, [b"x" * 1_000, b"y"], machine=3, time_us=9)
    hollow = hollow_of(row)
    head = head_of(hollow)
    assert len(hollow) < 100 and head.hollow and not head_of(row).hollow
    assert (head.epoch, head.first, head.next, head.machine, head.time_us) == (7, 40, 42, 3, 9)


def test_rows_become_hollow_below_the_snapshot_and_stay_so_after_a_restart():
    cluster = Cluster(1, SMALL).found(0)
    kept(cluster.keepers[0])
    for number in range(40):
        cluster.write(b"%040d" % number)
    cluster.run()
    keeper = cluster.keepers[0]
    below = keeper.ledger.snapshot.row
    wanted = [at for at in range(keeper.ledger.start, keeper.ledger.end) if keeper.ledger.head_at(at).kind == COMMANDS]
    done = keeper.hollow(wanted)
    assert done == [at for at in wanted if at < below] and done
    cluster.run()
    with pytest.raises(BadInput, match="nobody reads it"):
        keeper.read(keeper.ledger.head_at(done[0]).first)
    before = list(cluster.states[0])
    keeper = cluster.restart(0)
    kept(keeper)
    cluster.until(lambda: cluster.states[0] == before)
    assert keeper.whole and keeper.ledger.head_at(done[0]).hollow
    assert not any(head.hollow for at, head in enumerate(heads(cluster, 0), keeper.ledger.start) if at >= below)


def test_a_keeper_that_missed_hollow_rows_takes_the_snapshot_and_counts_again():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    for keeper in cluster.keepers.values():
        kept(keeper)
    away = next(number for number in range(3) if not cluster.keepers[number].leads)
    cluster.write(b"%040d" % 0)
    cluster.settled()
    cluster.isolate(away)
    for number in range(1, 40):
        cluster.write(b"%040d" % number)
    cluster.run()
    leader = cluster.leader()
    commands = range(leader.ledger.start, leader.ledger.snapshot.row)
    assert leader.hollow([at for at in commands if leader.ledger.head_at(at).kind == COMMANDS])
    cluster.run()
    cluster.cut.clear()
    assert len(cluster.settled()) == 40
    assert cluster.keepers[away].seat.installs == 1 and cluster.keepers[away].whole
    cluster.write(b"on")
    assert cluster.settled()[-1] == b"on"


def test_rows_below_a_snapshot_that_was_taken_over_are_freed_before_the_next_snapshot():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    for keeper in cluster.keepers.values():
        kept(keeper)
    away = next(number for number in range(3) if not cluster.keepers[number].leads)
    cluster.write(b"%040d" % 0)
    cluster.settled()
    cluster.isolate(away)
    for number in range(1, 40):
        cluster.write(b"%040d" % number)
    cluster.run()
    leader = cluster.leader()
    lacking = cluster.keepers[away].ledger.end
    assert is_command(leader, lacking) and leader.hollow([lacking]), "its snapshot is asked for, and not its rows"
    cluster.run(0.1)
    cluster.cut.clear()
    cluster.settled()
    cluster.run(0.1)
    keeper = cluster.keepers[away]
    assert keeper.seat.installs == 1 and keeper.seat.kept_at is None
    rows = [at for at in range(keeper.ledger.start, keeper.ledger.snapshot.row) if is_command(keeper, at)]
    assert len(rows) > 10 and keeper.hollow(rows) == rows
    cluster.run()
    assert all(keeper.ledger.head_at(at).hollow for at in rows)


def test_all_keepers_take_their_snapshots_at_the_same_rows():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    for number in range(60):
        cluster.write(b"%040d" % number)
    cluster.settled()
    cluster.run()
    rows = {keeper.ledger.snapshot.row for keeper in cluster.keepers.values()}
    digests = {keeper.ledger.snapshot.digest for keeper in cluster.keepers.values()}
    assert len(rows) == len(digests) == 1 and rows != {0}
    assert any(head.kind == MARK for head in heads(cluster, 0))


def test_a_keeper_with_another_state_than_most_loads_it_anew_and_says_so():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    astray = next(number for number in range(3) if not cluster.keepers[number].leads)
    cluster.write(b"%040d" % 0)
    cluster.settled()
    cluster.states[astray][0] = b"%040d" % 999  # a machine that is not pure
    for number in range(1, 60):
        cluster.write(b"%040d" % number)
    cluster.until(lambda: cluster.keepers[astray].differed == 1)
    assert any("most keepers had another state" in report for report in cluster.reports)
    assert cluster.settled()[0] == b"%040d" % 0
    cluster.until(lambda: cluster.keepers[astray].whole)


def test_a_leader_with_another_state_than_most_steps_down():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    leader = cluster.leader()
    number = cluster.number_of(leader)
    cluster.write(b"%040d" % 0)
    cluster.settled()
    cluster.states[number][0] = b"%040d" % 999
    answers = [cluster.submit(number, b"%040d" % at) for at in range(1, 60)]
    cluster.until(lambda: all(answers))
    cluster.until(lambda: cluster.states[number][:1] == [b"%040d" % 0])
    cluster.until(lambda: leader.whole)


def test_a_state_in_parts_writes_only_what_changed():
    cluster = Cluster(1, QUICK).found(0)
    keeper, state = cluster.keepers[0], Parted()
    keeper.seat.state = state
    for changed in (["a", "b", "c"], ["b"], []):
        state.changed = changed
        cluster.write(b"x")
        keeper.seat.take_snapshot()
        cluster.run()
        assert state.asked == changed and state.kept
        assert [part.name for part in keeper.ledger.snapshot.parts] == ["a", "b", "c"]
        state.asked = []


class Parted:
    """Three parts, of which some changed."""

    def __init__(self):
        self.changed, self.asked, self.kept = [], [], None

    def freeze(self, known):
        return ["a", "b", "c"], self.changed

    def part(self, name):
        self.asked.append(name)
        return name.encode()

    def thaw(self, kept):
        self.kept = kept

    def restore(self, index, parts):
        assert not list(parts)


def test_a_snapshot_that_the_disk_refuses_leaves_everything_to_be_kept():
    cluster = Cluster(1, QUICK).found(0)
    keeper, state = cluster.keepers[0], Parted()
    keeper.seat.state = state
    state.changed = ["a", "b", "c"]
    cluster.write(b"x")
    cluster.disks[0].full = True
    keeper.seat.take_snapshot()
    cluster.run()
    assert state.kept is False and keeper.ledger.snapshot.row == 0


def test_a_keeper_without_the_code_stores_and_votes_and_does_not_lead():
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.number_of(cluster.leader())
    cluster.keepers[leader].halt("has no code")
    cluster.until(lambda: cluster.leader() is not None and cluster.number_of(cluster.leader()) != leader)
    other = next(number for number in range(3) if number not in (leader, cluster.number_of(cluster.leader())))
    cluster.crash(other)
    before = len(cluster.states[leader])
    cluster.write(b"with its vote and its disk")
    assert len(cluster.states[leader]) == before
    cluster.until(lambda: cluster.keepers[leader].ledger.durable == cluster.leader().ledger.end)
