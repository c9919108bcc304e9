"""Keepers among themselves: leaders, commits, restarts, voters, learners, snapshots, reads, and bad disks."""

import pytest

from pluribus.core.errors import (
    BadInput,
    Closed,
    Damaged,
    NotPrimary,
    Overflow,
    Refused,
    TooLarge,
    Uncertain,
)
from pluribus.core.limits import BODY_BYTES_MAX
from pluribus.group.keepers import Keeper, Settings, follower, ledger, requests
from pluribus.group.log import LogPort
from tests.group.keepers.cluster import QUICK, Cluster

SMALL = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=500, words_bytes=200, slack_rows=2)


def test_a_keeper_is_a_log_port():
    cluster = Cluster(1)
    port: LogPort = cluster.keepers[0]
    assert port.applied == 0


def test_one_keeper_alone_commits_when_its_disk_has_it():
    cluster = Cluster(1).found(0)
    answers = cluster.submit(0, b"a", b"b")
    cluster.kernel.run(cluster.kernel.now + 0.001)
    assert answers == [] and cluster.states[0] == []
    cluster.run()
    assert answers == [(0, None)]
    assert cluster.states[0] == [b"a", b"b"]
    assert cluster.keepers[0].applied == 2


def test_what_waits_together_is_one_row():
    cluster = Cluster(1).found(0)
    rows = cluster.keepers[0].ledger.end
    answers = [cluster.submit(0, b"%d" % number) for number in range(100)]
    cluster.run()
    assert [answer[0] for answer in answers] == [(number, None) for number in range(100)]
    assert cluster.keepers[0].ledger.end - rows == 1
    for number in range(100):
        cluster.submit(0, b"x" * 10_000)
        if number % 10 == 0:
            cluster.run(0.0001)
    cluster.run()
    assert cluster.keepers[0].ledger.end - rows < 10
    assert len(cluster.states[0]) == 200


def test_three_commit_with_one_of_them_away():
    cluster = Cluster(3).found(0, 1, 2)
    away = next(number for number in range(3) if not cluster.keepers[number].leads)
    cluster.isolate(away)
    assert cluster.write(b"a") == 0
    cluster.cut.clear()
    assert cluster.settled() == [b"a"]


def test_two_of_three_away_and_nothing_is_committed():
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.leader()
    number = cluster.number_of(leader)
    cluster.isolate(number)
    answers = cluster.submit(number, b"lost")
    cluster.until(lambda: answers)
    assert isinstance(answers[0][1], Uncertain)
    cluster.until(lambda: cluster.leader() is not leader)
    assert cluster.write(b"kept") == 0
    cluster.cut.clear()
    assert cluster.settled() == [b"kept"], "what only the old leader had never happened"
    late = cluster.submit(number, b"more")
    cluster.until(lambda: late)
    assert late == [(1, None)]


def test_without_a_leader_a_command_waits_and_is_then_given_up_for_certain():
    cluster = Cluster(3)
    cluster.run()
    answers = cluster.submit(0, b"a")
    cluster.until(lambda: answers)
    assert isinstance(answers[0][1], NotPrimary)
    waiting = cluster.submit(1, b"b")
    cluster.found(0, 1, 2)
    cluster.until(lambda: waiting)
    assert waiting == [(0, None)]


def test_any_keeper_takes_commands_and_keeps_their_order():
    cluster = Cluster(4).found(0, 1, 2)
    follower = next(number for number in range(3) if not cluster.keepers[number].leads)
    for number in (follower, 3):
        answers = [cluster.submit(number, b"%d/%d" % (number, count)) for count in range(20)]
        cluster.until(lambda answers=answers: all(answers))
        assert all(error is None for ((_, error),) in answers)
        assert [index for ((index, _),) in answers] == sorted(index for ((index, _),) in answers)
    assert cluster.settled()[20:] == [b"3/%d" % count for count in range(20)]


def test_after_all_were_restarted_any_majority_goes_on():
    for away in range(3):
        cluster = Cluster(3).found(0, 1, 2)
        cluster.write(b"a", b"b")
        cluster.settled()
        for number in range(3):
            cluster.crash(number)
        for number in range(3):
            if number != away:
                cluster.start(number)
        cluster.until(cluster.leader)
        assert cluster.write(b"c") == 2
        cluster.start(away)
        assert cluster.settled() == [b"a", b"b", b"c"]


def test_a_keeper_alone_leads_again_as_soon_as_its_disk_has_its_name():
    cluster = Cluster(1).found(0)
    cluster.write(b"a")
    again = cluster.restart(0)
    cluster.run(cluster.settings.election_s / 3)
    assert again.leads, "it asks nobody, so it waits for nobody"
    assert cluster.settled() == [b"a"]


def test_who_hears_a_leader_while_its_disk_is_slow_does_not_stand_against_it():
    cluster = Cluster(3).found(0, 1, 2)
    follower = next(keeper for keeper in cluster.keepers.values() if not keeper.leads)
    epoch = follower.ledger.epoch
    follower.role._overdue = True  # as if its promise had been on its way to the disk when it was due
    cluster.run(cluster.settings.heartbeat_s * 2)
    cluster.write(b"a")
    assert cluster.leader().ledger.epoch == epoch
    assert not follower.leads and not follower.role._overdue


def test_a_name_is_kept_and_a_new_disk_is_a_new_keeper():
    cluster = Cluster(3).found(0, 1, 2)
    before = cluster.keepers[2].id
    assert cluster.restart(2).id == before
    cluster.crash(2)
    cluster.disks[2] = Cluster(1).disks[0]
    cluster.disks[2]._kernel = cluster.kernel
    other = cluster.start(2)
    assert other.id != before or other.ledger.fresh
    cluster.write(b"a")


def test_an_epoch_has_one_leader_and_a_deposed_one_follows():
    cluster = Cluster(5).found(0, 1, 2, 3, 4)
    for _ in range(3):
        number = cluster.number_of(cluster.leader())
        cluster.isolate(number)
        cluster.until(lambda number=number: cluster.leader() and cluster.number_of(cluster.leader()) != number)
        cluster.cut.clear()
        cluster.run(2.0)
        assert sum(keeper.leads for keeper in cluster.keepers.values()) == 1
    epochs = [epoch for _, role, epoch in cluster.roles if role == "leader"]
    assert len(epochs) == len(set(epochs)) >= 4


def test_a_keeper_that_was_away_deposes_nobody():
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.leader()
    away = next(number for number in range(3) if not cluster.keepers[number].leads)
    cluster.isolate(away)
    cluster.run(10.0)
    cluster.cut.clear()
    cluster.run(3.0)
    assert cluster.leader() is leader, "elections are tried first"


def test_two_that_found_logs_of_one_name_do_not_mix():
    cluster = Cluster(2)
    cluster.found(0)
    cluster.keepers[1].found([cluster.keepers[1].id])
    cluster.run(3.0)
    cluster.write(b"mine", number=0)
    cluster.write(b"yours", number=1)
    cluster.run(3.0)
    assert (cluster.states[0], cluster.states[1]) == ([b"mine"], [b"yours"])


def test_founding_is_refused_where_it_makes_no_sense():
    cluster = Cluster(2).found(0)
    with pytest.raises(BadInput, match="has a log already"):
        cluster.keepers[0].found([cluster.keepers[0].id])
    other = Cluster(2)
    for founders in ([], [other.keepers[1].id], [other.keepers[0].id] * 2):
        with pytest.raises(BadInput, match="must hold"):
            other.keepers[0].found(founders)


# --- voters and learners ----------------------------------------------------------------------------------------------


def change(cluster, keeper, votes, number=0):
    answers = []
    cluster.keepers[number].set_voter(keeper.id, votes, lambda index, error: answers.append(error))
    cluster.until(lambda: answers)
    return answers[0]


def test_learners_follow_and_become_voters_one_by_one():
    cluster = Cluster(3).found(0)
    cluster.write(b"a")
    assert cluster.settled() == [b"a"]
    assert not any(cluster.keepers[number].stats()["votes"] for number in (1, 2))
    for number in (1, 2):
        assert change(cluster, cluster.keepers[number], True, number=2) is None
    assert [len(keeper.voters) for keeper in cluster.keepers.values()] == [3] * 3
    cluster.crash(0)
    cluster.until(cluster.leader)
    assert cluster.write(b"b") == 1, "two of three are enough"


def test_a_voter_is_removed_also_when_it_leads():
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.leader()
    assert change(cluster, leader, False, number=cluster.number_of(leader)) is None
    cluster.until(lambda: cluster.leader() not in (None, leader))
    assert leader.id not in cluster.leader().voters
    cluster.crash(cluster.number_of(leader))
    cluster.write(b"a")


def test_changes_that_cannot_be_are_refused():
    cluster = Cluster(2).found(0)
    assert isinstance(change(cluster, cluster.keepers[0], False), Refused)
    assert change(cluster, cluster.keepers[0], True) is None, "it is one already"
    cluster.crash(1)
    stranger = type("Stranger", (), {"id": 12345})
    assert isinstance(change(cluster, stranger, True), Refused), "nobody of that name ever followed"


# --- reads ------------------------------------------------------------------------------------------------------------


def test_a_barrier_brings_the_reader_up_to_date():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a", b"b")
    for number in range(3):
        seen = []
        cluster.keepers[number].barrier(lambda index, error, n=number, s=seen: s.append((index, cluster.states[n][:])))
        cluster.until(lambda seen=seen: seen)
        assert seen == [(2, [b"a", b"b"])]


def test_a_leader_that_was_cut_off_answers_no_reads():
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.leader()
    number = cluster.number_of(leader)
    cluster.isolate(number)
    seen = []
    leader.barrier(lambda index, error: seen.append(error))
    cluster.until(lambda: cluster.leader() is not leader)
    cluster.write(b"new")
    cluster.until(lambda: seen)
    assert isinstance(seen[0], NotPrimary)


def test_what_was_committed_can_be_read_again():
    cluster = Cluster(1, SMALL).found(0)
    keeper = cluster.keepers[0]
    keeper.keep_from(0)
    for number in range(60):
        cluster.write(*[b"%d/%d" % (number, part) for part in range(3)])
    assert keeper.ledger.snapshot.row > 10 and keeper.first == 0
    index, seen = 0, []
    while True:
        first, commands = keeper.read(index)
        if not commands:
            break
        assert first <= index < first + len(commands)
        seen += commands
        index = first + len(commands)
    assert seen == cluster.states[0] and index == keeper.applied == 180
    assert keeper.read(100) == (99, [b"33/0", b"33/1", b"33/2"])
    keeper.keep_from(90)
    cluster.run(0.1)
    assert 80 <= keeper.first <= 90
    with pytest.raises(BadInput, match="not kept any more"):
        keeper.read(keeper.first - 1)
    assert keeper.read(100) == (99, [b"33/0", b"33/1", b"33/2"])


# --- snapshots --------------------------------------------------------------------------------------------------------


def test_a_log_is_trimmed_and_a_keeper_that_was_away_gets_the_snapshot():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    away = next(number for number in range(3) if not cluster.keepers[number].leads)
    cluster.isolate(away)
    for number in range(100):
        cluster.write(b"command %d" % number)
    leader = cluster.leader()
    assert leader.ledger.start > 50 and leader.ledger.snapshot.row > 50
    cluster.cut.clear()
    assert len(cluster.settled()) == 100
    assert cluster.heard["Piece"] > 1, "it came in pieces"
    for number in range(3):
        cluster.restart(number)
    cluster.until(cluster.leader)
    assert len(cluster.settled()) == 100


def test_a_newcomer_gets_the_rows_that_are_kept_on_purpose_too():
    cluster = Cluster(2, SMALL).found(0)
    cluster.keepers[0].keep_from(0)
    cluster.crash(1)
    for number in range(100):
        cluster.write(b"command %d" % number)
    assert cluster.keepers[0].ledger.snapshot.row > 50
    cluster.start(1).keep_from(0)
    assert len(cluster.settled()) == 100
    cluster.until(lambda: cluster.keepers[1].ledger.end == cluster.keepers[0].ledger.end)
    assert cluster.keepers[1].read(0)[1] == [b"command 0"]


# --- bad disks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [None, 10])
def test_a_state_that_is_larger_than_a_message_reaches_a_newcomer_or_it_is_said_why_not(monkeypatch, caplog, limit):
    size = BODY_BYTES_MAX + 1 if limit is None else 11
    monkeypatch.setattr(follower, "PART_BYTES_MAX", limit or follower.PART_BYTES_MAX)
    cluster = Cluster(2, Settings(heartbeat_s=0.05, election_s=0.3, words_bytes=64 << 20, slack_rows=0)).found(0)
    cluster.isolate(1)
    cluster.write(b"command")
    cluster.keepers[0].on_snapshot = lambda: bytes(size)
    cluster.keepers[0].seat.take_snapshot()
    cluster.run()
    cluster.cut.clear()
    if limit is None:
        cluster.until(lambda: sum(map(len, cluster.states[1])) == size)
    else:
        cluster.run(5.0)
    assert caplog.text.count("cannot follow: its leader has a snapshot with") == (limit is not None)


def strike(cluster, number, *rows):
    """These rows are gone from the disk."""
    log = cluster.disks[number]._platter.logs["log/log"]
    for row in rows:
        log.rows[row - log.start] = None


def test_a_damaged_row_is_noticed_at_the_start_and_put_back_and_meanwhile_there_is_no_vote():
    cluster = Cluster(3).found(0, 1, 2)
    for number in range(10):
        cluster.write(b"%d" % number)
    cluster.settled()
    cluster.crash(2)
    strike(cluster, 2, 4, 5)
    cluster.isolate(2)
    keeper = cluster.start(2)
    assert not keeper.whole and not keeper.ledger.may_vote
    other = next(number for number in (0, 1) if not cluster.keepers[number].leads)
    cluster.crash(cluster.number_of(cluster.leader()))
    cluster.cut = set()
    cluster.run(5.0)
    assert not any(one.leads for one in cluster.keepers.values()), "two of three are up, but one is not whole"
    back = 1 - other
    cluster.start(back)
    cluster.until(lambda: keeper.whole)
    assert len(cluster.settled()) == 10
    assert cluster.disks[2].damage() == 0
    assert any("is damaged" in report for report in cluster.reports)
    assert any("whole again" in report for report in cluster.reports)


def founded_unheard():
    """Keeper 0 has founded a log of three voters, and the others have not heard of it."""
    cluster = Cluster(3)
    cluster.isolate(0)
    cluster.run(0.1)
    cluster.keepers[0].found([keeper.id for keeper in cluster.keepers.values()])
    cluster.run()
    return cluster


@pytest.mark.parametrize("promised", [False, True])
def test_a_founder_whose_only_row_went_bad_before_anybody_had_it_puts_it_back(promised):
    cluster = founded_unheard()
    if promised:
        cluster.keepers[0].ledger.promise(1, 0)
        cluster.run()
    cluster.crash(0)
    strike(cluster, 0, 0)
    keeper = cluster.start(0)
    assert keeper.ledger.meta.health == 0 and keeper.ledger.voters.keepers == keeper.ledger.meta.founders
    assert any("puts the first row back" in report for report in cluster.reports)
    cluster.cut = set()
    cluster.until(cluster.leader)
    cluster.write(b"a")
    assert cluster.settled() == [b"a"]
    assert cluster.disks[0].damage() == 0


def test_a_founder_that_leads_and_whose_only_row_goes_bad_puts_it_back():
    """Others voted for it, but belong to a log of which they have no row: nobody else could be elected."""
    cluster = founded_unheard()
    cluster.crash(0)
    keeper = cluster.start(0)
    strike(cluster, 0, 0)
    cluster.cut = set()
    cluster.until(cluster.leader)
    cluster.write(b"a")
    assert cluster.settled() == [b"a"]
    assert any("puts the first row back" in report for report in cluster.reports)
    assert keeper.ledger.meta.health == 0 and cluster.disks[0].damage() == 0


def test_damage_is_remembered_until_it_is_repaired():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    cluster.crash(1)
    strike(cluster, 1, 1)
    cluster.isolate(1)
    cluster.start(1)
    cluster.run(0.1)
    log = cluster.disks[1]._platter.logs["log/log"]
    log.rows[1] = cluster.disks[0]._platter.logs["log/log"].rows[1]
    assert cluster.restart(1).whole is False, "who lost one row may have lost others that nobody can name"
    cluster.cut.clear()
    cluster.until(lambda: cluster.keepers[1].whole)


def test_a_lost_end_is_put_back():
    cluster = Cluster(3).found(0, 1, 2)
    for number in range(10):
        cluster.write(b"%d" % number)
    cluster.settled()
    cluster.crash(1)
    end = cluster.disks[1].end("log/log")
    strike(cluster, 1, *range(end - 6, end))
    cluster.start(1)
    cluster.until(lambda: cluster.keepers[1].whole)
    assert cluster.disks[1].damage() == 0


def test_a_lost_snapshot_is_sent_again():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    for number in range(60):
        cluster.write(b"command %d" % number)
    cluster.settled()
    cluster.crash(1)
    checksum, value = cluster.disks[1]._platter.keys["log/snapshot"]
    cluster.disks[1]._platter.keys["log/snapshot"] = (checksum ^ 1, value)
    keeper = cluster.start(1)
    assert not keeper.whole
    cluster.until(lambda: keeper.whole)
    assert len(cluster.settled()) == 60


def test_a_log_that_is_missing_altogether_is_not_taken_for_a_new_one():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    cluster.crash(1)
    del cluster.disks[1]._platter.logs["log/log"]
    keeper = cluster.start(1)
    assert not keeper.whole and not keeper.ledger.may_vote
    cluster.until(lambda: keeper.whole)
    assert cluster.settled() == [b"a"]


def test_who_cannot_read_its_promise_does_not_start():
    cluster = Cluster(1).found(0)
    cluster.crash(0)
    keys = cluster.disks[0]._platter.keys
    keys["log/meta/a"] = (keys["log/meta/a"][0] ^ 1, keys["log/meta/a"][1])
    assert cluster.start(0).whole, "there are two copies"
    cluster.until(cluster.leader)
    cluster.crash(0)
    for copy in "ab":
        keys[f"log/meta/{copy}"] = (0, b"x")
    with pytest.raises(Damaged, match="give it a new store"):
        cluster.start(0)


def test_a_keeper_alone_lives_with_old_damage_and_stops_at_new():
    cluster = Cluster(1, SMALL).found(0)
    cluster.keepers[0].keep_from(0)
    for number in range(60):
        cluster.write(b"command %d" % number)
    cluster.crash(0)
    strike(cluster, 0, 5)
    keeper = cluster.start(0)
    keeper.keep_from(0)
    cluster.until(cluster.leader)
    cluster.write(b"goes on")
    with pytest.raises(Damaged):
        keeper.read(3)
    assert keeper.stats()["damaged"] == 1 and keeper.leads
    cluster.crash(0)
    strike(cluster, 0, cluster.disks[0].end("log/log") - 1)
    keeper = cluster.start(0)
    cluster.run(5.0)
    assert not keeper.leads and not keeper.whole


def test_a_keeper_alone_forgets_rows_behind_old_damage_too(monkeypatch):
    monkeypatch.setattr(ledger, "TRIM_ROWS_MAX", 8)
    cluster = Cluster(1, SMALL).found(0)
    cluster.keepers[0].keep_from(0)
    for number in range(60):
        cluster.write(b"command %d" % number)
    start = cluster.keepers[0].ledger.start
    cluster.crash(0)
    strike(cluster, 0, start + 6, start + 7, start + 13)  # the last of those that are forgotten at a time
    keeper = cluster.start(0)
    keeper.keep_from(0)
    cluster.until(cluster.leader)
    keeper.keep_from(None)
    cluster.run()
    assert keeper.leads and keeper.ledger.start == keeper.ledger.snapshot.row - SMALL.slack_rows
    cluster.restart(0)
    cluster.until(cluster.leader)
    assert cluster.states[0] == [b"command %d" % number for number in range(60)]


def test_a_leader_that_finds_damage_steps_down_and_is_repaired():
    cluster = Cluster(3, SMALL).found(0, 1, 2)
    for keeper in cluster.keepers.values():
        keeper.keep_from(0)
    for number in range(40):
        cluster.write(b"command %d" % number)
    cluster.settled()
    for number in range(3):
        cluster.restart(number).keep_from(0)
    cluster.until(cluster.leader)
    leader = cluster.leader()
    strike(cluster, cluster.number_of(leader), 5)
    with pytest.raises(Damaged):
        leader.read(3)
    assert not leader.leads and not leader.whole
    cluster.until(lambda: leader.whole)
    assert leader.read(3)[1]


# --- limits -----------------------------------------------------------------------------------------------------------


def test_too_much_is_refused(monkeypatch):
    cluster = Cluster(1).found(0)
    keeper = cluster.keepers[0]
    with pytest.raises(TooLarge, match="the limit is"):
        cluster.submit(0, b"x" * (requests.SUBMISSION_BYTES_MAX + 1))
    monkeypatch.setattr(requests, "REQUESTS_MAX", 3)
    answers = [cluster.submit(0, b"x") for _ in range(3)]
    with pytest.raises(Overflow, match="3 requests"):
        cluster.submit(0, b"x")
    cluster.run()
    assert all(answers)
    cluster.submit(0, b"x")
    keeper.stop()
    with pytest.raises(Closed):
        cluster.submit(0, b"x")


def test_who_waits_hears_that_the_keeper_was_stopped():
    cluster = Cluster(3).found(0, 1, 2)
    leader = cluster.leader()
    follower = next(keeper for keeper in cluster.keepers.values() if keeper is not leader)
    for keeper in (leader, follower):
        heard = []
        keeper.submit(b"a", lambda index, error, heard=heard: heard.append(error))
        keeper.barrier(lambda index, error, heard=heard: heard.append(error))
        keeper.stop()
        assert [type(error) for error in heard] in ([Uncertain, Closed], [Closed, Closed], [Closed, Uncertain])


def test_words_that_no_keeper_says_are_counted():
    cluster = Cluster(1).found(0)
    keeper: Keeper = cluster.keepers[0]
    for words in (b"", b"nonsense", b"\x94\x09\x01\x02\x92\x01\x00"):
        keeper.receive(words)
    assert keeper.malformed == 3
    cluster.write(b"a")


def test_times_have_sensible_defaults():
    assert Settings().heartbeat_s * 5 <= Settings().election_s
    assert QUICK.election_s < Settings().election_s
