"""What was acknowledged, as runs, and when it is told that it is lost."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.events import Dissolved
from pluribus.core.frame import Frame, Piece, Relayed
from pluribus.group.acknowledged import GROUPS_MAX, RUNS_MAX, Acknowledged, Runs
from pluribus.stack.events import ViewChanged

ME = 7


def primary(lineage: int, *, excluded: bool = False) -> ViewChanged:
    return ViewChanged(2, ME, (ME,), primary=True, lineage=lineage, epoch=1, excluded=excluded)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 40)), unique=True))
def test_runs_name_what_was_added_and_nothing_else(added):
    runs = Runs()
    for owner, number in added:
        runs.add(owner, number, number + 1)
    named = [(owner, number) for owner, first, stop in runs.runs for number in range(first, stop)]
    assert named == sorted(added) and runs.count == len(added)
    assert all(a[0] != b[0] or a[2] < b[1] for a, b in zip(runs.runs, runs.runs[1:], strict=False)), "they are joined"


def test_a_long_life_in_order_is_one_run():
    runs = Runs()
    for number in range(10 * RUNS_MAX):
        runs.add(ME, number, number + 1)
    assert runs.runs == ((ME, 0, 10 * RUNS_MAX),)


def test_of_very_many_runs_the_last_are_named_and_all_are_counted():
    runs = Runs()
    for number in range(0, 6 * RUNS_MAX, 2):
        runs.add(ME, number, number + 1)
    assert runs.count == 3 * RUNS_MAX
    assert len(runs.runs) <= RUNS_MAX and runs.runs[-1] == (ME, 6 * RUNS_MAX - 2, 6 * RUNS_MAX - 1)


def test_pieces_count_once_and_what_is_forwarded_for_others_not_at_all():
    runs = Runs()
    runs.delivered(Frame(sender=ME, first=0, count=1, headers=[Piece(5, 0, 2, 0)]))
    runs.delivered(Frame(sender=ME, first=1, count=1, headers=[Piece(5, 1, 2, 0)]))
    runs.delivered(Frame(sender=ME, first=2, count=3, headers=[]))
    runs.delivered(Frame(sender=ME, first=5, count=1, headers=[Relayed(9, 0, 0)]))
    assert runs.runs == ((ME, 1, 5),)


def test_it_is_told_once_that_a_chain_was_given_up(caplog):
    acknowledged = Acknowledged()
    runs = acknowledged.of("ledger")
    acknowledged.of("silent")
    assert acknowledged.view_changed(primary(1)) == []
    runs.add(ME, 0, 3)
    with caplog.at_level(logging.WARNING):
        lost = acknowledged.view_changed(primary(2, excluded=True))
    assert lost == [Dissolved("messages", "ledger", 3, ((ME, 0, 3),))]
    assert "3 messages of 'ledger'" in caplog.text and "7:0..2" in caplog.text
    assert acknowledged.view_changed(primary(3, excluded=True)) == []
    runs.add(ME, 3, 4)
    assert acknowledged.view_changed(primary(4, excluded=True))[0].ids == ((ME, 3, 4),), "channels keep their runs"


def test_nothing_is_lost_while_the_chain_goes_on_or_is_forced_on():
    acknowledged = Acknowledged()
    acknowledged.of("ledger").add(ME, 0, 3)
    outside = ViewChanged(3, ME, (ME,), primary=False)
    for view in (primary(1), outside, primary(1, excluded=True), primary(2)):
        assert acknowledged.view_changed(view) == []
    assert acknowledged.view_changed(primary(1, excluded=True)) != [], "but then it was given up"


def test_groups_without_end_are_not_remembered():
    acknowledged = Acknowledged()
    for number in range(GROUPS_MAX + 5):
        acknowledged.of(f"group {number}").add(ME, 0, 1)
    assert acknowledged.view_changed(primary(1)) == []
    assert len(acknowledged.view_changed(primary(2, excluded=True))) == GROUPS_MAX
