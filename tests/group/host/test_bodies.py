"""Bodies by handle: at hand or read later, against plain lists; bounds; what is gone, damaged, or asked for twice."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core.errors import BadInput, Closed, Damaged, Overflow
from pluribus.group.host import bodies as module
from pluribus.group.host.bodies import Bodies, BodyRow
from pluribus.group.host.host import inner_place
from pluribus.group.host.words import Together, encode

MACHINE = 3


def pieces(command):
    return msgspec.msgpack.decode(command, type=list[bytes])


class Disk:
    """Rows of commands; some of them in memory, the others read when the test says so."""

    def __init__(self, rows, memory=(), machine=MACHINE):
        self.rows, self.memory, self.machine = rows, set(memory), machine
        self.bad = set()
        self.asked = []

    def row_at_hand(self, at):
        return (self.machine, self.rows[at]) if at in self.memory else None

    def fetch_rows(self, rows, opened, done):
        self.asked.append((rows, opened, done))

    def answer(self):
        """The oldest question."""
        rows, opened, done = self.asked.pop(0)
        held = [Damaged(f"row {at}") if at in self.bad else opened(at, self.machine, self.rows[at]) for at in rows]
        done(held)
        return rows


def a_row(row, commands=2, count=3):
    return [msgspec.msgpack.encode([b"%d/%d/%d" % (row, place, n) for n in range(count)]) for place in range(commands)]


def reading(disk):
    return Bodies(disk, lambda number: pieces)


def ask(bodies, handles):
    got = []
    bodies.resolve(MACHINE, handles, lambda found, error: got.append((list(found), error)))
    return got


def test_what_is_in_memory_is_given_at_once_and_the_rest_when_it_was_read():
    disk = Disk([a_row(row) for row in range(4)], memory=[0])
    bodies = reading(disk)
    assert ask(bodies, [(0, 1, 2), (0, 0, 0)]) == [([b"0/1/2", b"0/0/0"], None)]
    assert (
        bodies.at_hand(MACHINE, [(0, 0, 1)]) == [b"0/0/1"] and bodies.at_hand(MACHINE, [(0, 0, 0), (2, 0, 0)]) is None
    )
    got = ask(bodies, [(2, 0, 1), (0, 0, 0), (1, 1, 0), (2, 1, 1)])
    assert got == [] and [rows for rows, _, _ in disk.asked] == [[1, 2]]
    disk.answer()
    assert got == [([b"2/0/1", b"0/0/0", b"1/1/0", b"2/1/1"], None)]
    assert bodies.at_hand(MACHINE, [(2, 0, 0)]) == [b"2/0/0"], "it is in memory now"
    bodies.validate()


def test_a_row_that_several_want_is_read_once():
    disk = Disk([a_row(0), a_row(1)])
    bodies = reading(disk)
    first, second = ask(bodies, [(0, 0, 0), (1, 0, 0)]), ask(bodies, [(1, 1, 2)])
    bodies.validate()
    assert len(disk.asked) == 1 and disk.answer() == [0, 1] and disk.asked == []
    assert first == [([b"0/0/0", b"1/0/0"], None)] and second == [([b"1/1/2"], None)]
    assert bodies.reads == 2


def test_a_long_request_does_not_hold_up_a_short_one(monkeypatch):
    monkeypatch.setattr(module, "TURN_ROWS", 2)
    monkeypatch.setattr(module, "READ_ROWS", 4)
    disk = Disk([a_row(row) for row in range(40)])
    bodies = reading(disk)
    long = ask(bodies, [(row, 0, 0) for row in range(30)])
    short = ask(bodies, [(35, 0, 0)])
    disk.answer()
    assert 35 in disk.answer() and short == [([b"35/0/0"], None)] and long == []
    while disk.asked:
        disk.answer()
    assert long == [([b"%d/0/0" % row for row in range(30)], None)]
    bodies.validate()


def test_bodies_inside_of_transactions():
    commands = a_row(0)
    word = Together(1, 1, 0, [(7, [b"of another machine"]), (MACHINE, commands)])
    disk = Disk([[encode(word), b"no transaction"]], memory=[0], machine=0)
    bodies = reading(disk)
    wanted = [
        (0, inner_place(0, 1), 2),
        (0, inner_place(0, 2), 0),
        (0, inner_place(0, 9), 0),
        (0, inner_place(1, 0), 0),
    ]
    assert ask(bodies, wanted) == [([b"0/0/2", b"0/1/0", None, None], None)]


def test_what_is_gone_is_none_and_what_is_damaged_an_error():
    disk = Disk([[], a_row(1), a_row(2)])
    bodies = reading(disk)
    got = ask(bodies, [(0, 0, 0), (1, 0, 7)])
    disk.answer()
    assert got == [([None, None], None)]
    disk.bad = {2}
    got = ask(bodies, [(1, 0, 0), (2, 0, 0)])
    disk.answer()
    assert got[0][0] == [] and isinstance(got[0][1], Damaged)
    disk.bad = set()
    got = ask(bodies, [(2, 0, 0)])
    disk.answer()
    assert got == [([b"2/0/0"], None)], "it was put back"
    bodies.validate()


def test_memory_is_bounded_and_the_least_recently_used_goes():
    disk = Disk([a_row(row) for row in range(100)], memory=range(100))
    bodies = reading(disk)
    one = BodyRow(MACHINE, disk.rows[0]).size
    bodies.cache_bytes_max = 8 * one + 100
    for row in range(8):
        bodies.applied(row, MACHINE, disk.rows[row])
    bodies.at_hand(MACHINE, [(0, 0, 0)])
    bodies.applied(8, MACHINE, disk.rows[8])
    bodies.validate()
    disk.memory = set()
    assert bodies.at_hand(MACHINE, [(0, 0, 0)]) == [b"0/0/0"] and bodies.at_hand(MACHINE, [(1, 0, 0)]) is None
    bodies.applied(50, MACHINE, [bytes(9 * one)])
    assert bodies.at_hand(MACHINE, [(0, 0, 0)]) == [b"0/0/0"], "a row that is too long pushes nobody out"
    bodies.clear()
    assert bodies.at_hand(MACHINE, [(0, 0, 0)]) is None


def test_too_much_is_refused_and_those_who_wait_hear_of_the_end(monkeypatch):
    monkeypatch.setattr(module, "REQUESTS_MAX", 2)
    monkeypatch.setattr(module, "HANDLES_MAX", 5)
    disk = Disk([a_row(row) for row in range(9)])
    bodies = reading(disk)
    with pytest.raises(BadInput, match="6 bodies at once"):
        ask(bodies, [(0, 0, 0)] * 6)
    waiting = [ask(bodies, [(row, 0, 0), (row + 1, 0, 0)]) for row in (0, 3)]
    with pytest.raises(Overflow, match="ask again later"):
        ask(bodies, [(7, 0, 0)])
    bodies.close()
    assert [isinstance(got[0][1], Closed) for got in waiting] == [True, True]
    disk.answer()
    with pytest.raises(Closed, match="another one"):
        ask(bodies, [(0, 0, 0)])


HANDLES = st.lists(st.tuples(st.integers(0, 19), st.integers(0, 1), st.integers(0, 2)), max_size=30)


@settings(max_examples=200)
@given(st.lists(st.tuples(HANDLES, st.integers(0, 3)), max_size=12), st.sets(st.integers(0, 19)))
def test_every_request_gets_its_bodies_in_its_order(requests, memory):
    disk = Disk([a_row(row) for row in range(20)], memory)
    bodies = reading(disk)
    bodies.cache_bytes_max = 5 * BodyRow(MACHINE, disk.rows[0]).size
    asked = []
    for handles, answers in requests:
        asked.append((handles, ask(bodies, handles)))
        bodies.validate()
        for _ in range(min(answers, len(disk.asked))):
            disk.answer()
            bodies.validate()
    while disk.asked:
        disk.answer()
    for handles, got in asked:
        assert got == [([b"%d/%d/%d" % handle for handle in handles], None)]
