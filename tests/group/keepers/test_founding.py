"""Two keepers begin a log at once: one log has a leader, and who belongs to the other leaves it."""

import pytest

from tests.group.keepers.cluster import Cluster


def found_apart(size=3, first=0, second=1):
    """Two keepers have founded logs with the same voters, and nobody has heard of either."""
    cluster = Cluster(size)
    cluster.cut = {(one, other) for one in range(size) for other in range(size) if one != other}
    cluster.run(0.1)
    for number in (first, second):
        others = [keeper.id for other, keeper in cluster.keepers.items() if other != number]
        cluster.keepers[number].found([cluster.keepers[number].id, *others])
    cluster.run(0.1)
    return cluster


def together(cluster):
    cluster.cut = set()
    cluster.until(cluster.leader)
    leader = cluster.leader()
    cluster.until(lambda: all(one.ledger.end == leader.ledger.end for one in cluster.keepers.values()))
    assert len({keeper.ledger.meta.cluster for keeper in cluster.keepers.values()}) == 1
    for number in cluster.keepers:
        cluster.write(b"%d" % number, number=number)
    assert cluster.settled() == [b"%d" % number for number in cluster.keepers]


def led_without(cluster, number):
    """The others have a leader before this one hears anything."""
    cluster.isolate(number)
    cluster.cut |= {(other, number) for _, other in cluster.cut}
    cluster.until(cluster.leader)
    cluster.write(b"before")


@pytest.mark.parametrize("promised", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_a_founder_that_nobody_elected_follows_the_leader_of_the_other_log(number, promised):
    cluster = found_apart()
    founder = cluster.keepers[number]
    if promised:
        founder.ledger.promise(1, founder.id)
    led_without(cluster, number)
    cluster.cut = set()
    cluster.until(lambda: cluster.states[number] == [b"before"])
    cluster.write(b"mine", number=number)
    assert cluster.settled() == [b"before", b"mine"]
    assert founder.ledger.epoch >= promised and not founder.ledger.meta.founders
    assert sum("gives up its log" in report for report in cluster.reports) == 1
    cluster.restart(number)
    assert cluster.settled() == [b"before", b"mine"]


def test_two_founders_of_three_do_not_wait_for_the_third():
    cluster = found_apart()
    cluster.crash(2)
    together(cluster)


def test_who_was_asked_by_a_founder_only_leaves_with_it():
    """Of five, two belong to each log, and the fifth is away."""
    cluster = found_apart(5)
    cluster.crash(4)
    cluster.cut -= {(0, 2), (2, 0), (1, 3), (3, 1)}
    cluster.until(lambda: not any(keeper.ledger.fresh for keeper in cluster.keepers.values()))
    assert len({keeper.ledger.meta.cluster for keeper in cluster.keepers.values()}) == 2
    together(cluster)


def test_who_belongs_to_a_log_in_vain_and_has_no_vote_in_the_other_follows_too():
    cluster = Cluster(3)
    cluster.isolate(2)
    cluster.run(0.1)
    cluster.keepers[2].found([cluster.keepers[2].id, 1234, 5678])
    cluster.found(0, 1)
    together(cluster)
    assert len(cluster.leader().voters) == 2


def test_who_leaves_and_crashes_or_has_a_full_disk_leaves_again():
    cluster = found_apart()
    led_without(cluster, 0)
    founder = cluster.keepers[0]
    cluster.disks[0].full = True
    cluster.cut = set()
    cluster.until(lambda: founder.ledger.leaving)
    cluster.run(2.0)
    assert founder.ledger.leaving and not founder.ledger.fresh and cluster.states[0] == []
    founder = cluster.restart(0)
    assert founder.ledger.meta.founders, "it is where it was"
    cluster.run(2.0)
    assert founder.ledger.leaving
    cluster.disks[0].full = False
    assert cluster.settled() == [b"before"]


def test_who_has_more_than_the_first_row_stays():
    cluster = found_apart()
    led_without(cluster, 0)
    cluster.keepers[0].ledger.append(cluster.keepers[1].ledger.read(1, 2, 1_000))
    mine = cluster.keepers[0].ledger.meta.cluster
    cluster.run(0.1)
    cluster.cut = set()
    cluster.run(3.0)
    assert cluster.keepers[0].ledger.meta.cluster == mine and cluster.states[0] == []
    assert any("give one of them another name" in report for report in cluster.reports)
