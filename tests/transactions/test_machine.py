"""The list of transactions as a machine: what it takes, what it refuses, and that its state can be restored."""

from pluribus.group.host.machine import Ground, Refusal
from pluribus.group.once import OrderedSessions
from pluribus.transactions import machine as limits
from pluribus.transactions import words
from pluribus.transactions.machine import MOVED, Transactions
from pluribus.transactions.words import ABORTED, ACTING, AGAIN, COMMITTED, DONE, ENDED, PREPARED, REFUSED, UNKNOWN

S = 1_000_000
PARTS = [("queue.q", [b"one", b"two"])]


def machine():
    made = Transactions(Ground(1, lambda row, size: None, lambda: 0, OrderedSessions(10, 4)))
    made.ground.now_us = 1_000 * S
    return made


def tell(one, command):
    outcome = one.apply(1, 0, words.encode(command))
    one.validate()
    return outcome.status


def together(one, *commands):
    """The reason for a refusal; empty if it was done."""
    found = one.prepare(1, range(len(commands)), [words.encode(command) for command in commands])
    if isinstance(found, Refusal):
        return found.reason
    one.commit(found)
    one.validate()
    return ""


def test_one_that_nobody_joined_is_known_when_it_is_committed():
    one = machine()
    assert one.state(7) == UNKNOWN and together(one, words.Commit(7)) == "" and one.state(7) == COMMITTED
    assert together(one, words.Commit(7)) == "the transaction is committed"
    assert tell(one, words.Abort(7)) == ENDED and tell(one, words.Join(7, S)) == ENDED
    assert tell(one, words.Abort(8)) == DONE and tell(one, words.Abort(8)) == AGAIN
    assert together(one, words.Commit(8)) == "the transaction is aborted"


def test_a_commit_leaves_out_nothing_that_others_did():
    one = machine()
    assert tell(one, words.Put(7, 1, PARTS)) == ENDED, "nobody has joined it"
    assert tell(one, words.Join(7, S)) == DONE and one.state(7) == ACTING
    assert tell(one, words.Put(7, 1, PARTS)) == DONE and tell(one, words.Put(7, 1, PARTS)) == AGAIN
    assert together(one, words.Commit(7, 0)) == MOVED
    assert together(one, words.Commit(7, 1)) == "" and one.size_bytes == 0


def test_a_lease_ends_what_is_not_prepared():
    one = machine()
    for id in (7, 8):
        assert tell(one, words.Join(id, S)) == DONE
    assert together(one, words.Prepare(8, 0, PARTS, [])) == ""
    assert one.due_us() == one.ground.now_us + S
    one.ground.now_us += S
    assert one.state(7) == ABORTED, "also before the tick"
    assert together(one, words.Commit(7)) == "the transaction is aborted"
    one.tick()
    one.validate()
    assert (one.state(7), one.state(8), one.due_us()) == (ABORTED, PREPARED, None)
    assert tell(one, words.Abort(8)) == ENDED, "only together with what it keeps"
    assert together(one, words.Commit(8, 0)) == MOVED and together(one, words.Commit(8, 1)) == ""


def test_a_restored_one_is_the_same():
    one = machine()
    tell(one, words.Join(7, S))
    tell(one, words.Put(7, 5, PARTS))
    tell(one, words.Put(7, 3, PARTS))
    tell(one, words.Join(9, S))
    together(one, words.Prepare(9, 0, PARTS, PARTS))
    for id in range(100, 3_500):
        tell(one, words.Abort(id)) if id % 2 else together(one, words.Commit(id))
    parts = [(name, one.encode_part(name)) for name in one.part_names()]
    other = machine()
    other.restore(parts)
    other.validate()
    assert [(name, other.encode_part(name)) for name in other.part_names()] == parts
    assert other.query(words.encode(words.Show(7))) == one.query(words.encode(words.Show(7)))
    assert other.state(101) == ABORTED and other.state(102) == COMMITTED


def test_tables_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "ENDED_MAX", 640)
    monkeypatch.setattr(limits, "ACTING_MAX", 2)
    monkeypatch.setattr(limits, "PUT_BYTES_MAX", 20)
    one = machine()
    for id in range(1, 2_000):
        tell(one, words.Abort(id))
    assert 600 < len(one.ended) <= 640 and one.state(1_999) == ABORTED and one.state(1) == UNKNOWN
    assert [tell(one, words.Join(5_000 + at, S)) for at in range(3)] == [DONE, DONE, REFUSED]
    assert tell(one, words.Put(5_000, 1, PARTS)) == DONE and tell(one, words.Put(5_000, 2, PARTS)) == REFUSED
    assert one.apply(1, 0, b"junk").status == REFUSED
    assert isinstance(one.prepare(1, [0], [b"junk"]), Refusal)
