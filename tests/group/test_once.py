"""Ordered sessions: once each, in order, however often asked; the table is bounded and travels in snapshots."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core.errors import MalformedFrame
from pluribus.group.once import DONE, REFUSED, OnceMachine, OrderedSessions, Outcome, identified, outcome_of


class Journal:
    """Writes down what it does."""

    def __init__(self):
        self.done = []

    def apply(self, index, command):
        self.done.append(command)
        return b"%d" % len(self.done)

    def snapshot(self):
        return b"|".join(self.done)

    def restore(self, state):
        self.done = state.split(b"|") if state else []


def asked(machine, session, sequence, command=b"x") -> Outcome:
    return outcome_of(machine.apply(0, identified(session, sequence, command)))


def test_the_next_is_done_the_same_again_is_answered_and_what_is_ahead_is_refused():
    machine = OnceMachine(Journal())
    assert asked(machine, 7, 1) == Outcome(DONE, 2, b"1")
    assert asked(machine, 7, 1) == Outcome(DONE, 2, b"1", True)
    assert asked(machine, 7, 3) == Outcome(REFUSED, 2)
    assert asked(machine, 7, 2) == Outcome(DONE, 3, b"2")
    assert asked(machine, 8, 5) == Outcome(REFUSED, 1), "a session that is not known begins with 1"
    assert asked(machine, 7, 0) == Outcome(REFUSED, 3)
    assert len(machine.machine.done) == 2


def test_what_is_no_command_changes_nothing():
    machine = OnceMachine(Journal())
    assert outcome_of(machine.apply(0, b"nonsense")).status == REFUSED
    assert machine.machine.done == []
    with pytest.raises(MalformedFrame):
        outcome_of(b"nonsense")


def test_the_session_that_was_used_longest_ago_is_forgotten_and_told_so():
    machine = OnceMachine(Journal(), OrderedSessions(sessions_max=2))
    for session in (1, 2):
        asked(machine, session, 1)
    asked(machine, 1, 2)
    asked(machine, 3, 1)
    assert len(machine.sessions) == 2
    assert asked(machine, 2, 2) == Outcome(REFUSED, 1), "its publisher does not know any more what was done"
    assert asked(machine, 1, 2).again


def test_old_results_are_forgotten_and_the_command_is_still_not_done_again():
    machine = OnceMachine(Journal(), OrderedSessions(results_max=2))
    for sequence in range(1, 6):
        asked(machine, 1, sequence)
    assert asked(machine, 1, 5) == Outcome(DONE, 6, b"5", True)
    assert asked(machine, 1, 1) == Outcome(DONE, 6, b"", True)
    assert len(machine.machine.done) == 5


def test_a_batch_is_recorded_by_its_last():
    sessions = OrderedSessions()
    assert sessions.next(1) == 1
    sessions.record(1, 100)
    assert sessions.next(1) == 101
    assert sessions.earlier(1, 100) == Outcome(DONE, 101, b"", True)
    assert sessions.earlier(1, 101) is None


calls = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), max_size=60)


@settings(max_examples=200)
@given(calls=calls, cut=st.integers(0, 60))
def test_replicas_agree_also_when_one_was_restored_in_between(calls, cut):
    one, other = (OnceMachine(Journal(), OrderedSessions(sessions_max=2, results_max=2)) for _ in range(2))
    done: dict[int, int] = {}
    for number, (session, sequence) in enumerate(calls):
        if number == cut:
            fresh = OnceMachine(Journal(), OrderedSessions(sessions_max=2, results_max=2))
            fresh.restore(other.snapshot())
            other = fresh
        command = b"%d/%d" % (session, sequence)
        outcome = asked(one, session, sequence, command)
        assert outcome == asked(other, session, sequence, command)
        if outcome.status == DONE and not outcome.again:
            assert sequence == outcome.next - 1
            done[session] = sequence
    assert one.snapshot() == other.snapshot()
