"""Rows of an older epoch are not committed by being counted, though most voters have them: a later leader may still
replace them (Ongaro and Ousterhout, figure 8). The story is told step by step, because chance rarely tells it."""

import msgspec

from pluribus.group.keepers.rows import head_of
from pluribus.group.keepers.words import Rows, decode
from tests.group.keepers.cluster import QUICK, Cluster
from tests.mutants.hunt import released
from tests.mutants.keepers import Counting

ROW_BY_ROW = msgspec.structs.replace(QUICK, words_bytes=1)


def told() -> tuple[list[bytes], list[bytes]]:
    """What the first leader had applied when it crashed for the last time, and what there is in the end."""
    cluster = Cluster(3, ROW_BY_ROW).found(0, 1, 2)
    cluster.write(b"first")
    cluster.settled()
    one = cluster.number_of(cluster.leader())
    cluster.isolate(one)
    cluster.submit(one, b"alone")
    cluster.run(0.05)
    assert cluster.keepers[one].ledger.durable == cluster.keepers[one].ledger.end
    cluster.crash(one)  # it alone has that row

    carry = cluster.carry

    def without_the_new_epoch(number, to, words):
        word = decode(words).word
        if not (isinstance(word, Rows) and any(head_of(row).epoch == word.epoch for row in word.rows)):
            carry(number, to, words)

    cluster.carry = without_the_new_epoch
    cluster.cut.clear()
    cluster.until(lambda: any(keeper.leads for keeper in cluster.keepers.values()))
    other = next(number for number, keeper in cluster.keepers.items() if keeper.leads)
    third = next(number for number in cluster.keepers if number != other)
    cluster.run(0.05)
    cluster.crash(other)  # it alone has the row that begins its epoch, in the same place

    keeper = cluster.start(one)
    cluster.until(lambda: keeper.leads)
    end = keeper.ledger.end
    cluster.until(lambda: cluster.keepers[third].ledger.durable == end - 1)
    cluster.run(0.1)  # two of three have the first leader's old row on disk, and it leads
    before = list(cluster.states[one])
    cluster.crash(one)

    cluster.carry = carry
    cluster.start(other)
    cluster.until(cluster.leader)
    cluster.write(b"another")
    cluster.start(one)
    return before, cluster.settled()


def test_an_old_row_that_most_voters_have_is_not_committed():
    before, after = told()
    assert b"alone" not in before
    assert after == [b"first", b"another"]


def test_a_leader_that_counts_old_rows_loses_what_it_committed():
    with released(Counting):
        before, after = told()
    assert before == [b"first", b"alone"]
    assert after[: len(before)] != before
