"""Keepers on disks that are full, or that cannot be read for a while: nothing is lost, and they go on by themselves."""

import pytest

from pluribus.core.errors import Damaged, Unavailable
from pluribus.core.ports import Put
from pluribus.group.keepers import Settings, ledger
from pluribus.group.keepers.words import Piece, Rows, decode
from tests.group.keepers.cluster import Cluster
from tests.mutants.hunt import released
from tests.mutants.keepers import Reborn

SMALL = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=500, words_bytes=200, slack_rows=2)


def test_a_full_disk_loses_nothing_and_is_used_again_when_there_is_room():
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.leader()
    number = cluster.number_of(leader)
    cluster.disks[number].full = True
    answers = cluster.submit(number, b"a")
    cluster.until(lambda: answers)
    cluster.until(lambda: cluster.leader() not in (None, leader))
    cluster.write(b"b")
    cluster.disks[number].full = False
    state = cluster.settled()
    assert state in ([b"b"], [b"a", b"b"])
    assert (answers[0][1] is None) <= (state == [b"a", b"b"])
    assert any("cannot write" in report for report in cluster.reports)


def test_a_disk_without_room_for_a_snapshot_keeps_the_rows_that_the_last_one_needs():
    cluster = Cluster(1, SMALL).found(0)
    disk, written = cluster.disks[0], []
    for number in range(40):
        written.append(b"%040d" % number)
        cluster.write(written[-1])
    write = disk.write

    def no_room_for_much(changes, done):
        disk.full = any(isinstance(change, Put) and change.key.endswith("/snapshot") for change in changes)
        write(changes, done)
        disk.full = False

    disk.write = no_room_for_much
    before = cluster.keepers[0].ledger.snapshot.row
    while not any("cannot write" in report for report in cluster.reports):
        written.append(b"%040d" % len(written))
        cluster.submit(0, written[-1])
        cluster.run()
    assert cluster.keepers[0].ledger.snapshot.row == before
    disk.write = write
    cluster.restart(0)
    cluster.until(lambda: cluster.states[0] == written)
    cluster.write(b"more")


def away(*arguments):
    raise Unavailable("the server of this store is away")


@pytest.mark.parametrize("size", [1, 3])
def test_a_disk_that_refuses_and_cannot_be_read_is_used_again_when_it_is_there(size):
    cluster = Cluster(size).found(*range(size))
    cluster.write(b"before")
    number = next(n for n, keeper in cluster.keepers.items() if keeper.leads == (size == 1))
    disk, ledger = cluster.disks[number], cluster.keepers[number].ledger
    disk.full, disk.bounds = True, away
    cluster.submit(cluster.number_of(cluster.leader()), b"meanwhile")
    cluster.run(1.0)
    assert ledger.failing
    disk.full = False
    del disk.bounds
    cluster.until(cluster.leader)
    cluster.until(lambda: ledger.durable == ledger.end == disk.end("log/log") == cluster.leader().ledger.end)
    cluster.write(b"after")
    assert cluster.settled()[-1] == b"after"
    assert sum("cannot read" in report for report in cluster.reports) == 1


def test_a_leader_that_cannot_read_for_a_while_goes_on_leading(monkeypatch):
    monkeypatch.setattr(ledger, "CACHE_BYTES_MAX", 0)
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.leader()
    number = cluster.number_of(leader)
    behind = next(n for n in range(3) if n != number)
    cluster.isolate(behind)
    for command in (b"a", b"b", b"c"):
        cluster.write(command)
    disk = cluster.disks[number]
    disk.read = away
    cluster.cut.clear()
    cluster.run(2.0)
    with pytest.raises(Damaged, match="ask another keeper"):
        leader.read_rows(1, 1_000)
    assert leader.leads and leader.whole and cluster.states[behind] == []
    del disk.read
    assert cluster.settled() == [b"a", b"b", b"c"]
    assert leader.leads


def test_damage_that_cannot_be_written_down_for_want_of_room_is_not_forgotten():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"before")
    number = next(n for n, keeper in cluster.keepers.items() if not keeper.leads)
    disk = cluster.disks[number]
    cluster.crash(number)
    cluster.isolate(number)
    log = disk._platter.logs["log/log"]
    del log.rows[-1]
    log.sure, disk.full = False, True
    keeper = cluster.start(number)
    cluster.run()
    assert not keeper.whole and not keeper.seat.may_speak, "nobody hears of a life that is not on disk"
    disk.full = False
    cluster.run(2.0)
    assert keeper.seat.may_speak
    log.sure = True  # as a store is when it was written to since
    keeper = cluster.restart(number)
    assert not keeper.whole
    cluster.cut.clear()
    cluster.until(lambda: keeper.whole)
    assert cluster.settled() == [b"before"]


def test_damage_that_is_found_on_a_full_disk_is_written_down_when_there_is_room():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"before")
    number = next(n for n, keeper in cluster.keepers.items() if not keeper.leads)
    keeper, disk = cluster.keepers[number], cluster.disks[number]
    cluster.isolate(number)
    disk.full = True
    keeper.ledger.damage_found(1)
    cluster.run()
    disk.full = False
    cluster.run(2.0)
    assert not cluster.restart(number).whole


def lost_by_a_store_set_aside() -> list[bytes]:
    """What there is in the end, after a voter that set its store aside was asked for its vote by one that is behind."""
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"first")
    cluster.settled()
    leading = cluster.number_of(cluster.leader())
    behind, broken = (number for number in range(3) if number != leading)
    cluster.isolate(behind)
    cluster.write(b"acknowledged")
    carry = cluster.carry

    def nothing_is_put_back(number, to, words):
        word = decode(words).word
        if not (isinstance(word, Piece) or (isinstance(word, Rows) and word.rows)):
            carry(number, to, words)

    cluster.carry = nothing_is_put_back
    cluster.disks[broken].shatter()
    cluster.submit(broken, b"x")
    cluster.submit(leading, b"x")
    cluster.keepers[broken].ledger.damage_found(1)
    cluster.until(lambda: any("set its store aside" in report for report in cluster.reports))
    cluster.crash(leading)
    cluster.carry = carry
    cluster.cut.clear()
    cluster.run(5.0)
    if any(keeper.leads for keeper in cluster.keepers.values()):
        cluster.write(b"another")
    cluster.start(leading)
    cluster.until(cluster.leader)
    return cluster.settled()


def test_a_voter_that_set_its_store_aside_does_not_vote_before_it_is_put_back():
    assert lost_by_a_store_set_aside()[:2] == [b"first", b"acknowledged"]


def test_that_finds_one_that_votes_at_once():
    with released(Reborn):
        assert b"acknowledged" not in lost_by_a_store_set_aside()


def test_a_learner_whose_store_is_broken_is_put_back_too_and_a_full_disk_waits():
    cluster = Cluster(4).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    cluster.disks[3].shatter()
    cluster.disks[3].full = True
    cluster.restart(3)
    cluster.run(3.0)
    assert not cluster.keepers[3].whole or cluster.keepers[3].ledger.failing or not cluster.states[3]
    cluster.disks[3].full = False
    cluster.write(b"b")
    cluster.until(lambda: cluster.keepers[3].whole and cluster.states[3] == [b"a", b"b"])
    assert not cluster.disks[3].broken


def test_a_store_that_broke_with_a_promise_of_a_later_epoch_is_put_back_by_the_leader_of_this_one():
    """The promise is not on disk, so nobody may hear of it; and the leader knows of no later epoch."""
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    leader = cluster.leader()
    cluster.isolate(cluster.number_of(leader))
    others = [keeper for keeper in cluster.keepers.values() if keeper is not leader]
    while not (candidates := [keeper for keeper in others if keeper.role.name == "candidate"]):
        cluster.run(0.001)
    keeper = candidates[0]
    disk = cluster.disks[cluster.number_of(keeper)]
    disk.shatter()
    cluster.until(lambda: keeper.ledger.broken)
    assert keeper.ledger.epoch > leader.ledger.epoch and not keeper.seat.may_speak
    cluster.cut.clear()
    assert leader.leads
    cluster.until(lambda: keeper.whole and not disk.broken and cluster.leader())
    cluster.write(b"b")
    assert cluster.settled() == [b"a", b"b"]
