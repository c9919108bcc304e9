"""The session table against a list of everything that was ever applied."""

from hypothesis import given
from hypothesis import strategies as st

from pluribus.group import sessions
from pluribus.group.sessions import FIRST_TIME, LOST, Command, SessionEntry, Sessions

commands = st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(0, 12), st.sampled_from([FIRST_TIME, 5, 6]))


@given(st.lists(commands, max_size=80), st.lists(st.integers(0, 80), max_size=5))
def test_nothing_is_applied_twice_and_what_is_asked_for_is_answered(asked, handovers):
    """A command is applied once at most; until its session says that it is settled, it is answered with its result."""
    table = Sessions()
    results: dict[tuple[int, int], SessionEntry] = {}
    settled: dict[int, int] = {}
    for place, (session, sequence, upto, generation) in enumerate(asked):
        if place in handovers:
            table, machine = Sessions.restored(table.saved(b"machine"))
            assert machine == b"machine"
        command = Command(session, sequence, min(upto, sequence), generation, b"")
        known = table.known(command, 5)
        key = (session, sequence)
        if known is None:
            assert key not in results or generation == FIRST_TIME
            assert key not in results, "applied twice"
            assert generation != 6, "of another life"
            results[key] = SessionEntry(True, b"%d" % place)
            table.keep(command, results[key])
            settled[session] = max(settled.get(session, 0), command.settled)
        elif known is LOST or known == LOST:
            assert sequence < settled.get(session, 0) or generation == 6
        else:
            assert known == results[key]
        table.validate()
        for (of, number), entry in results.items():
            if number >= settled[of]:
                assert table.known(Command(of, number, 0, 5, b""), 5) == entry


def test_a_session_that_had_to_make_room_is_uncertain_and_not_new():
    table = Sessions(2)
    for session in (1, 2, 3):
        table.keep(Command(session, 1, 1, FIRST_TIME, b""), SessionEntry(True, b""))
    assert table.known(Command(1, 1, 1, 5, b""), 5) == LOST
    assert table.known(Command(9, 1, 1, FIRST_TIME, b""), 5) is None
    assert table.known(Command(3, 1, 1, 5, b""), 5) == SessionEntry(True, b"")


def test_results_of_a_session_are_bounded(monkeypatch):
    monkeypatch.setattr(sessions, "RESULTS_MAX", 10)
    table = Sessions()
    for sequence in range(1, 30):
        table.keep(Command(1, sequence, 1, FIRST_TIME, b""), SessionEntry(True, b""))
        table.validate()
    assert table.known(Command(1, 3, 1, 5, b""), 5) == LOST


def test_bytes_that_are_no_command_are_nothing():
    assert Command.decoded(b"\xc1") is None
    assert Command.decoded(b"\x91\x01") is None
    command = Command(1, 2, 0, -1, b"x")
    assert Command.decoded(command.encoded()) == command
