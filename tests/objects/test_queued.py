"""Queued calls: what is on disk builds the same state again; a call is done at most once, whatever is lost."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pluribus.core.errors import Damaged, Overflow
from pluribus.core.ports import Append, Bounds, Trim
from pluribus.objects import journal as journal_of
from pluribus.objects import queued
from pluribus.objects.journal import Journal
from pluribus.objects.queued import NEW, OLD, OVER, RUNS, CallOutbox, Inbox, decode_rows, encode_row

LOST = (1, (0, b"lost"))


class Disk:
    """Rows of one log, all on disk at once."""

    def __init__(self) -> None:
        self.rows: list[bytes | None] = []
        self.start = 0

    def bounds(self, log: str) -> Bounds:
        return Bounds(self.start, self.start + len(self.rows))

    def end(self, log: str) -> int:
        return self.bounds(log).end

    def read(self, log: str, start: int, stop: int):
        return self.rows[start - self.start : stop - self.start]

    def write(self, changes, done) -> None:
        for change in changes:
            if isinstance(change, Append):
                self.rows += change.rows
            else:
                assert isinstance(change, Trim)
                del self.rows[: change.start - self.start]
                self.start = change.start
        done(None)


class Calls(RuleBasedStateMachine):
    """A caller and a site, each with a disk, that crash at any time; the network repeats and loses."""

    def __init__(self) -> None:
        super().__init__()
        self.out_disk, self.in_disk = Disk(), Disk()
        self.keys: dict[int, str] = {}
        self.done: dict[int, int] = {}
        self.results: dict[int, object] = {}
        self.began: list[int] = []
        self.restart_caller()
        self.restart_site()

    def keep(self, journal: Journal, rows) -> None:
        journal.add([encode_row(row) for row in rows], lambda error: None)

    @rule()
    def restart_caller(self):
        rows = decode_rows(Journal(self.out_disk, "out", lambda: ()).rows())
        was = getattr(self, "outbox", None)
        self.outbox = CallOutbox("queue", rows)
        self.out = Journal(self.out_disk, "out", lambda: self.outbox.live())
        if not rows:
            self.keep(self.out, decode_rows(self.outbox.live()))
        if was is not None:
            assert self.outbox.calls == was.calls and self.outbox.settled == was.settled
            assert list(self.outbox.remembered) == list(was.remembered)

    @rule()
    def restart_site(self):
        rows = decode_rows(Journal(self.in_disk, "in", lambda: ()).rows())
        self.inbox = Inbox("site", rows, LOST)
        self.into = Journal(self.in_disk, "in", lambda: self.inbox.live())
        self.began = []

    @rule(key=st.sampled_from(["", "a", "b"]))
    def call(self, key):
        known = self.outbox.by_key(key)
        call, rows = self.outbox.accept(key, "printer", b"")
        assert (known is None) == bool(rows) and (known is None or call is known)
        self.keep(self.out, rows)

    @precondition(lambda self: self.outbox.calls)
    @rule(data=st.data(), answered=st.booleans())
    def offer(self, data, answered):
        call = self.outbox.calls[data.draw(st.sampled_from(sorted(self.outbox.calls)))]
        if call.outcome is not None:
            return
        if not call.site:
            rows = self.outbox.bind(call.number, "site")
            self.keep(self.out, rows)
            self.outbox.apply(rows)
        self.keep(self.into, self.inbox.forget("queue", self.outbox.settled))
        how, outcome = self.inbox.look("queue", call.number)
        assert how != OLD, "what is offered is not settled"
        if how == NEW:
            self.keep(self.into, self.inbox.begin("queue", call.number))
            self.done[call.number] = self.done.get(call.number, 0) + 1
            self.began.append(call.number)
        elif how == OVER and answered:
            rows = self.outbox.answer(call.number, outcome)
            self.keep(self.out, rows)
            self.outbox.apply(rows)
            self.results.setdefault(call.number, outcome)
            assert self.results[call.number] == outcome

    @precondition(lambda self: self.began)
    @rule()
    def end(self):
        number = self.began.pop(0)
        assert self.inbox.look("queue", number)[0] == RUNS
        self.keep(self.into, self.inbox.end("queue", number, (0, (0, b"%d" % number))))

    @precondition(lambda self: self.outbox.calls)
    @rule()
    def take(self):
        for number, call in list(self.outbox.calls.items()):
            if call.outcome is not None:
                self.keep(self.out, self.outbox.take(number))
                return

    @invariant()
    def at_most_once(self):
        assert all(times == 1 for times in self.done.values())
        self.outbox.validate()
        self.inbox.validate()


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_journal_stays_short_and_its_state_the_same(monkeypatch):
    monkeypatch.setattr(journal_of, "ROWS_SPARE", 20)
    disk = Disk()
    outbox = CallOutbox("queue")
    journal = Journal(disk, "out", outbox.live)
    journal.add(list(outbox.live()), lambda error: None)
    kept, rows = outbox.accept("for ever", "printer", b"")
    journal.add([encode_row(row) for row in rows], lambda error: None)
    for _ in range(500):
        call, rows = outbox.accept("", "printer", b"")
        rows += outbox.take(call.number)
        journal.add([encode_row(row) for row in rows], lambda error: None)
    assert len(disk.rows) < 40
    again = CallOutbox("", decode_rows(Journal(disk, "out", lambda: ()).rows()))
    assert again.calls == outbox.calls == {kept.number: kept} and again.name == "queue"
    assert again.accept("", "printer", b"")[0].number == 502, "numbers are never used again"


def test_answers_with_a_key_are_remembered_after_they_were_taken_and_the_oldest_are_forgotten(monkeypatch):
    monkeypatch.setattr(queued, "QUEUED_KEYS_MAX", 2)
    monkeypatch.setattr(queued, "QUEUED_KEYS_BYTES_MAX", 10)
    monkeypatch.setattr(journal_of, "ROWS_SPARE", 5)
    disk, outbox = Disk(), CallOutbox("queue")
    journal = Journal(disk, "out", outbox.live)
    journal.add(list(outbox.live()), lambda error: None)

    def once(key: str, answer: bytes) -> None:
        call, rows = outbox.accept(key, "printer", b"payload")
        answered = outbox.answer(call.number, (0, (0, answer)))
        outbox.apply(answered)
        rows += [*answered, *outbox.take(call.number)]
        journal.add([encode_row(row) for row in rows], lambda error: None)
        outbox.validate()

    for key in ("a", "b", "c", "", "b"):
        once(key, key.encode())
    for known in (outbox, CallOutbox("", decode_rows(Journal(disk, "out", lambda: ()).rows()))):
        known.validate()
        assert known.by_key("a") is None and not known.calls and known.settled == 5
        call, rows = known.accept("b", "printer", b"")
        assert rows == [] and call.outcome == (0, (0, b"b"))
    once("d", b"too long for both")
    assert [call.key for call in outbox.remembered.values()] == []


def test_damage_and_limits(monkeypatch):
    disk = Disk()
    disk.rows = [b"x", None]
    with pytest.raises(Damaged, match="row 1"):
        Journal(disk, "out", lambda: ()).rows()
    with pytest.raises(Damaged, match="cannot be read"):
        decode_rows([b"x"])
    monkeypatch.setattr(queued, "QUEUED_CALLS_MAX", 1)
    monkeypatch.setattr(queued, "QUEUED_ANSWERS_MAX", 1)
    monkeypatch.setattr(queued, "QUEUES_MAX", 1)
    outbox, inbox = CallOutbox("queue"), Inbox("site")
    outbox.accept("", "printer", b"")
    with pytest.raises(Overflow, match="call later"):
        outbox.accept("", "printer", b"")
    inbox.begin("a", 1)
    with pytest.raises(Overflow, match="offer it later"):
        inbox.begin("b", 1)
    inbox.abandon("a", 1)
    inbox.begin("b", 1)
    inbox.validate()
    assert inbox.look("a", 1)[0] == NEW, "the queue that was silent longest is forgotten"
