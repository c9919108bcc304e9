"""A log that goes bad twice, or with what its keeper had promised: what was said of it before counts no more."""

from pluribus.group.keepers.ledger import EPOCHS_SKIPPED
from pluribus.group.keepers.words import Held, Rows, decode
from tests.group.keepers.cluster import Cluster
from tests.group.keepers.test_keeper import strike


def follower(cluster):
    return next(number for number, keeper in cluster.keepers.items() if not keeper.leads)


def damaged(cluster, number, row):
    """The keeper finds it as it runs, when it reads the row."""
    strike(cluster, number, row)
    cluster.keepers[number].ledger.damage_found(row)


def test_what_is_owed_since_the_first_damage_does_not_pay_for_the_second():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    number = follower(cluster)
    keeper = cluster.keepers[number]
    heard = []
    carry = cluster.carry

    def listened(sender, to, words):
        word = decode(words).word
        if isinstance(word, Rows) and word.debt and to == keeper.id:
            heard.append(words)
        carry(sender, to, words)

    cluster.carry = listened
    run = keeper.ledger.meta.run
    damaged(cluster, number, 1)
    assert keeper.ledger.meta.run == run + 1
    cluster.until(lambda: keeper.whole and heard)
    for command in (b"b", b"c", b"d"):
        cluster.write(command)
    cluster.settled()
    late, end = heard[-1], keeper.ledger.end
    cluster.isolate(number)
    damaged(cluster, number, end - 2)
    assert decode(late).word.debt <= end - 2
    keeper.receive(late)
    cluster.run(0.1)
    assert not keeper.whole and keeper.ledger.end == end, "it would have cut what the leader counts on it for"
    cluster.cut.clear()
    cluster.until(lambda: keeper.whole)
    assert cluster.settled() == [b"a", b"b", b"c", b"d"]


def test_what_a_keeper_said_before_its_log_went_bad_does_not_count():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    number = follower(cluster)
    leader, keeper = cluster.leader(), cluster.keepers[number]
    said = []
    carry = cluster.carry

    def listened(sender, to, words):
        if sender == number and isinstance(decode(words).word, Held):
            said.append(words)
        carry(sender, to, words)

    cluster.carry = listened
    cluster.run(0.2)
    before = said[-1]
    cluster.isolate(number)
    damaged(cluster, number, 1)
    cluster.cut.clear()
    peer = leader.role.peers[keeper.id]
    cluster.until(lambda: peer.debt)
    leader.receive(before)
    assert peer.debt and peer.health, "it says of an earlier run that all is well"
    cluster.until(lambda: keeper.whole)


def told_with_a_promise_lost(sure):
    """Two voters elected a leader; then one of them lost the commits in which it had voted, and knows it unless the
    store is ``sure``. What was acknowledged, and what there is in the end."""
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"first")
    cluster.settled()
    old = cluster.number_of(cluster.leader())
    candidate, forgetful = (number for number in range(3) if number != old)
    disk = cluster.disks[forgetful]
    copies = {key: disk._platter.keys[key] for key in ("log/meta/a", "log/meta/b")}
    heirs = {candidate, forgetful}
    cluster.keepers[old].role._step_down = lambda why: None  # it is slow to see that it is alone
    cluster.isolate(old)
    cluster.keepers[candidate].role._stand()
    cluster.until(lambda: any(cluster.keepers[number].leads for number in heirs))
    (leads,) = (number for number in heirs if cluster.keepers[number].leads)
    assert leads == candidate
    cluster.crash(forgetful)
    disk._platter.keys.update(copies)
    disk._platter.logs["log/log"].sure = sure
    cluster.isolate(candidate)
    cluster.start(forgetful)
    answers = cluster.submit(old, b"acknowledged?")
    cluster.run(1.5)
    acknowledged = [b"acknowledged?"] if answers and answers[0][1] is None else []
    disk._platter.logs["log/log"].sure = True
    cluster.crash(old)
    cluster.cut.clear()
    cluster.run(3.0)
    cluster.start(old)
    cluster.until(cluster.leader)
    return acknowledged, cluster.settled()


def test_a_keeper_whose_store_lost_commits_takes_no_part_in_epochs_that_it_may_have_promised():
    acknowledged, found = told_with_a_promise_lost(sure=False)
    assert found[:1] == [b"first"] and set(acknowledged) <= set(found)


def test_it_begins_far_behind_all_epochs_that_there_were():
    cluster = Cluster(3).found(0, 1, 2)
    cluster.write(b"a")
    cluster.settled()
    number = follower(cluster)
    epoch = cluster.keepers[number].ledger.epoch
    cluster.crash(number)
    log = cluster.disks[number]._platter.logs["log/log"]
    log.sure = False
    cluster.isolate(number)
    keeper = cluster.start(number)
    assert keeper.ledger.epoch == epoch + EPOCHS_SKIPPED and not keeper.ledger.may_vote
    log.sure = True
    cluster.cut.clear()
    cluster.until(lambda: keeper.whole and cluster.leader() is not None)
    assert cluster.leader().ledger.epoch > epoch + EPOCHS_SKIPPED
    cluster.write(b"b")
    assert cluster.settled() == [b"a", b"b"]
