"""Who votes, as people change it: dead voters removed, lost keepers replaced, what would stop the others refused; and
the last resort."""

import pytest

from pluribus.core.errors import BadInput, Refused, Uncertain
from pluribus.group.keepers import Settings
from pluribus.group.keepers.rows import Voters
from pluribus.group.keepers.voting import Standing, chosen, most_recent, refusal, standing_of
from pluribus.group.keepers.words import decode
from tests.group.keepers.cluster import Cluster
from tests.mutants.hunt import released
from tests.mutants.keepers import Loyal


def changed(cluster, number, keeper, votes):
    """The error of a change of voters, or None."""
    answers = []
    cluster.keepers[number].set_voter(keeper, votes, lambda index, error: answers.append(error))
    cluster.until(lambda: answers)
    return answers[0]


def survivors(cluster, *dead):
    for number in dead:
        cluster.crash(number)
    return [number for number in range(len(cluster.disks)) if number not in dead]


def test_a_lost_keeper_is_replaced_twice_and_there_is_still_a_majority():
    cluster = Cluster(5).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    ids = [cluster.keepers[number].id for number in range(5)]
    for lost, new in ((0, 3), (1, 4)):
        cluster.crash(lost)
        cluster.until(cluster.leader)
        asked = cluster.number_of(cluster.leader())
        assert changed(cluster, asked, ids[new], True) is None
        assert changed(cluster, cluster.number_of(cluster.leader()), ids[lost], False) is None
    assert set(cluster.leader().voters) == {ids[2], ids[3], ids[4]}
    cluster.crash(2)
    cluster.until(cluster.leader)
    cluster.write(b"b")
    assert cluster.settled() == [b"a", b"b"]


def test_a_removal_that_would_stop_the_others_is_refused():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    leading = cluster.number_of(cluster.leader())
    alive, dead = (number for number in range(3) if number != leading)
    ids = [cluster.keepers[number].id for number in range(3)]
    cluster.crash(dead)
    error = changed(cluster, leading, ids[alive], False)
    assert isinstance(error, Refused) and "of the 2 voters that there would be 1 answer, and 2 must" in str(error)
    assert changed(cluster, leading, ids[dead], False) is None
    cluster.write(b"b")
    error = changed(cluster, leading, ids[dead], True)
    assert "does not answer: start it" in str(error)


def test_also_right_after_an_election_when_nobody_was_heard_yet():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    ids = [cluster.keepers[number].id for number in range(3)]
    cluster.crash(cluster.number_of(cluster.leader()))
    cluster.until(lambda: any(keeper.leads for keeper in cluster.keepers.values()))
    leading = next(number for number, keeper in cluster.keepers.items() if keeper.leads)
    other = next(number for number in cluster.keepers if number != leading)
    assert isinstance(changed(cluster, leading, ids[other], False), Refused)
    cluster.write(b"b")


def test_a_change_that_was_made_before_the_snapshot_is_answered():
    """By a keeper that did not apply the row which made it: nobody waits for the result of a command there."""
    settings = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=500, slack_rows=2)
    cluster = Cluster(4, settings).found(0, 1, 2)
    new = cluster.keepers[3].id
    assert changed(cluster, cluster.number_of(cluster.leader()), new, True) is None
    while cluster.leader().ledger.snapshot.row <= cluster.leader().ledger.voters_row:
        cluster.write(b"%040d" % len(cluster.states[0]))
    asked = next(number for number, keeper in cluster.keepers.items() if not keeper.leads)
    cluster.settled()
    cluster.until(lambda: cluster.keepers[asked].ledger.snapshot.row > cluster.keepers[asked].ledger.voters_row)
    keeper = cluster.restart(asked)
    cluster.until(lambda: keeper.seat.leader)
    assert keeper.seat.restored_row > 0
    assert changed(cluster, asked, new, True) is None


def test_a_change_that_is_not_committed_is_not_told_to_be_made():
    """Nor to somebody who asks for it again."""
    cluster = Cluster(4).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    leader, new = cluster.leader(), cluster.keepers[3].id
    answers = []
    leader.set_voter(new, True, lambda index, error: answers.append(error))
    while new not in leader.voters:
        cluster.run(0.001)
    cluster.isolate(cluster.number_of(leader))
    leader.set_voter(new, True, lambda index, error: answers.append(error))
    cluster.until(lambda: len(answers) == 2)
    assert [type(error) for error in answers] == [Uncertain, Uncertain] and not leader.leads
    cluster.cut.clear()
    cluster.until(cluster.leader)
    assert changed(cluster, cluster.number_of(cluster.leader()), new, True) is None
    assert new in cluster.leader().applied_voters


def forced(cluster, cluster_number=77, wanted=""):
    """As a member of a bus does it."""
    roll = [standing_of(keeper) for keeper in cluster.keepers.values()]
    best = most_recent(roll, wanted)
    by_name = {f"{keeper.id:x}": keeper for keeper in cluster.keepers.values()}
    epoch = max(one.epoch for one in roll) + 1
    by_name[best.keeper].force(cluster_number, epoch)
    refused = []
    for one in roll:
        if one.keeper != best.keeper:
            try:
                by_name[one.keeper].adopt(best.cluster, cluster_number, epoch, best.end)
            except Refused as error:
                refused.append(str(error))
    return by_name[best.keeper], refused


def test_most_voters_are_gone_and_the_most_recent_log_goes_on():
    cluster = Cluster(5).found(0, 1, 2, 3, 4)
    cluster.write(b"a")
    cluster.settled()
    leading = cluster.number_of(cluster.leader())
    behind, ahead, *dead = (number for number in range(5) if number != leading)
    cluster.isolate(behind)
    cluster.write(b"acknowledged")
    cluster.run(0.5)
    cluster.cut.clear()
    survivors(cluster, leading, *dead)
    cluster.run(2.0)
    best, refused = forced(cluster)
    assert best is cluster.keepers[ahead] and refused == []
    cluster.until(lambda: cluster.keepers[behind].whole)
    cluster.write(b"more")
    assert cluster.settled() == [b"a", b"acknowledged", b"more"]
    assert best.voters == (best.id,)
    assert changed(cluster, cluster.number_of(best), cluster.keepers[behind].id, True) is None
    assert any("FORCED" in report for report in cluster.reports)
    cluster.restart(cluster.number_of(best))  # it is on disk
    cluster.until(cluster.leader)
    cluster.write(b"and more")


def test_an_old_voter_that_comes_back_is_a_stranger_and_changes_nothing():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    survivors(cluster, 0, 1)
    cluster.run(2.0)
    forced(cluster)
    cluster.until(cluster.leader)
    cluster.write(b"b")
    old = cluster.start(0)
    cluster.run(5.0)
    assert cluster.keepers[2].strangers and not old.leads and cluster.states[0] == []
    assert cluster.states[2] == [b"a", b"b"] and cluster.keepers[2].leads


def test_those_who_adopt_elect_nobody_by_the_old_list():
    """Although somebody forced where most voters are there, and only heard nobody for a moment."""
    cluster = Cluster(5).found(0, 1, 2, 3, 4)
    cluster.write(b"a")
    cluster.settled()
    leading = cluster.number_of(cluster.leader())
    cluster.cut = {(one, other) for one in range(5) for other in range(5)}
    cluster.crash(leading)
    cluster.run(2.0)
    best, _ = forced(cluster)
    alone = cluster.number_of(best)
    others = [number for number in cluster.keepers if number != alone]
    cluster.cut = {(alone, other) for other in others}
    cluster.run(5.0)
    assert not any(cluster.keepers[number].leads for number in others), "three of five, and none of them may vote"
    cluster.cut.clear()
    cluster.write(b"b", number=alone)
    cluster.until(lambda: cluster.settled() == [b"a", b"b"])


def test_it_is_refused_while_somebody_leads_or_nobody_is_whole():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    with pytest.raises(Refused, match="leads, so most voters are there"):
        forced(cluster)
    with pytest.raises(Refused, match="hears a leader"):
        cluster.leader().force(7, 99)
    survivors(cluster, 0, 1)
    cluster.keepers[2].ledger.damage_found(1)
    cluster.run(3.0)
    with pytest.raises(Refused, match="no keeper that is there has a whole log"):
        forced(cluster)
    with pytest.raises(Refused, match="cannot go on alone: its log is damaged"):
        cluster.keepers[2].force(7, 99)


def test_what_a_damaged_one_still_knows_is_not_given_up_without_a_word():
    whole = Standing("a", here=True, health="whole", end=50, cluster=1)
    knows = Standing("b", here=True, health="damaged", end=100, committed=90, cluster=1)
    with pytest.raises(Refused, match="keeper b has committed 90 rows"):
        most_recent([whole, knows])
    assert most_recent([whole, knows], "a") is whole
    with pytest.raises(Refused, match="several logs"):
        most_recent([whole, Standing("c", here=True, health="whole", end=5, cluster=2)])


def test_one_that_has_done_more_does_not_follow():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    keeper = next(keeper for keeper in cluster.keepers.values() if not keeper.leads)
    with pytest.raises(Refused, match="give it a new store"):
        keeper.adopt(keeper.ledger.meta.cluster, 9, 99, keeper.seat.commit - 1)
    with pytest.raises(Refused, match="belongs to another log"):
        keeper.adopt(1, 9, 99, 10)


def test_names():
    roll = [Standing("abcdef", member="one"), Standing("abc123", member="two"), Standing("ffff", votes=True)]
    assert [chosen(name, roll) for name in ("one", "abcd", "ffff")] == ["abcdef", "abcdef", "ffff"]
    for name, told in (("abc", "nobody is"), ("zzzz", "nobody is"), ("", "nobody is")):
        with pytest.raises(BadInput, match=told):
            chosen(name, roll)
    with pytest.raises(BadInput, match="several are"):
        chosen("abcd", [Standing("abcd1"), Standing("abcd2")])


@pytest.mark.parametrize(
    ("voters", "keeper", "answer", "fine"),
    [
        ((1, 2, 3), 3, {1, 2}, True),
        ((1, 2, 3), 2, {1, 2}, False),
        ((1, 2, 3), 4, {1, 2, 4}, True),
        ((1, 2, 3, 4), 5, {1, 2, 5}, True),
        ((1, 2, 3, 4, 5), 6, {1, 2, 3}, False),
    ],
)
def test_what_would_stop_the_others(voters, keeper, answer, fine):
    assert (refusal(Voters(1, voters), keeper, answer.__contains__) == "") is fine


def test_that_finds_one_that_votes_by_the_old_list():
    with released(Loyal), pytest.raises(AssertionError, match="none of them may vote"):
        test_those_who_adopt_elect_nobody_by_the_old_list()


def test_an_answer_to_an_earlier_life_is_no_answer_to_this_one():
    cluster = Cluster(3).found(0, 1, 2)
    follower = next(number for number in range(3) if not cluster.keepers[number].leads)
    said = []
    carry = cluster.carry
    cluster.carry = lambda number, to, words: (said.append((to, words)), carry(number, to, words))
    cluster.write(b"a", number=follower)
    placed = [words for to, words in said if type(decode(words).word).__name__ == "Placed"]
    assert len(placed) == 1
    keeper = cluster.restart(follower)
    cluster.until(lambda: keeper.seat.leader)
    answers = cluster.submit(follower, b"b")
    keeper.receive(placed[0])
    assert answers == []
    cluster.until(lambda: answers)
    assert answers == [(1, None)]
