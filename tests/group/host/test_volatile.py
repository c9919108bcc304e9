"""The log host in the memory of a group, without a group: the state on its way to joiners, bodies that are freed."""

from collections import deque

import msgspec
import pytest

from pluribus.group.host import space
from pluribus.group.host.host import HOST, Host
from pluribus.group.host.saved import SavedPart, SavedRows, pieces_of
from pluribus.group.host.volatile import VolatileLog, VolatileSpace
from pluribus.group.host.words import Create, encode
from pluribus.sim.machinery.jobs import Attach, Jobs, Put, Settle, Want
from tests.mutants.hosts import Late
from tests.mutants.hunt import released


class Order:
    """The safe order of a group with one member: everything is committed when the test says so."""

    name = "work"

    def __init__(self):
        self.waiting = deque()
        self.applied = 0

    def submit(self, command, done):
        self.waiting.append((command, done))

    def commit(self):
        while self.waiting:
            command, done = self.waiting.popleft()
            index, self.applied = self.applied, self.applied + 1
            self.on_commit(index, [command])
            done(index, None)


class Clock:
    def now(self):
        return 0.0


class SmallSpace(VolatileSpace):
    extent_bytes = 400


class Copy:
    """One member's copy of two machines of jobs."""

    def __init__(self):
        self.order = Order()
        self.log = VolatileLog(self.order, Clock(), lambda: 1_000.0)
        self.host = self.log.host = Host(self.log, {"jobs": Jobs}, space=SmallSpace)
        self.outcomes = []

    def do(self, *commands, machine=1):
        def done(index, error):
            assert error is None
            self.outcomes = self.host.take_outcomes(index, len(commands))

        sent = [command if isinstance(command, bytes) else msgspec.msgpack.encode(command) for command in commands]
        self.log.submit_many(sent, done, machine)
        self.order.commit()
        return self.outcomes

    def begun(self):
        self.do(encode(Create("left", "jobs", 1)), encode(Create("right", "jobs", 1)), machine=HOST)
        return self

    def puts(self, jobs, machine=1):
        for job in jobs:
            self.do(Put(job, b"body of %d" % job), machine=machine)

    def works(self):
        """A consumer is given jobs and settles one, so that every part changes."""
        ((_, epoch),) = self.do(Attach(7, 70))
        self.do(Want(7, epoch, 1, 5))
        self.do(Settle(7, epoch, next(iter(self.jobs().held))))

    def jobs(self, machine=1):
        return self.host.machines[machine].machine

    def state(self):
        """All parts, encoded afresh; and every job's body."""
        parts = {
            f"{number}/{name}": hosted.machine.encode_part(name)
            for number, hosted in self.host.machines.items()
            for name in hosted.machine.part_names()
        }
        bodies = {
            (number, job): hosted.machine.pieces(self.log.read_row(kept.row)[1][kept.place])[0]
            for number, hosted in self.host.machines.items()
            for job, kept in hosted.machine.kept()
        }
        return parts, bodies, self.log.time_us, self.log.row

    def taking(self):
        return self.order.on_snapshot_in_pieces()

    def restored(self, state):
        self.order.on_restore(0, state)
        self.log.validate()
        return self.state()


def test_the_state_is_of_one_moment_however_slowly_it_is_fetched():
    copy = Copy().begun()
    copy.puts(range(100))
    copy.works()
    before = copy.state()
    taking = copy.taking()
    fetched = [next(taking)]
    for number, piece in enumerate(taking):
        fetched.append(piece)
        copy.puts([1_000 + number], machine=1 + number % 2)
        copy.works()
        copy.log.free()
    assert Copy().restored(b"".join(fetched)) == before != copy.state()
    assert Copy().restored(b"".join(copy.taking())) == copy.state()


def test_that_finds_parts_that_are_encoded_late():
    with released(Late), pytest.raises(AssertionError):
        test_the_state_is_of_one_moment_however_slowly_it_is_fetched()


def test_nothing_of_a_state_is_encoded_before_it_is_fetched(monkeypatch):
    copy = Copy().begun()
    copy.puts(range(100))
    encoded = []
    monkeypatch.setattr(Host, "part", lambda host, name, part=Host.part: (encoded.append(name), part(host, name))[1])
    taking = copy.taking()
    next(taking)
    assert not encoded
    next(taking)
    assert len(encoded) == 1


def test_rows_are_cut_into_pieces(monkeypatch):
    monkeypatch.setattr("pluribus.group.host.saved.PIECE_BYTES", 500)
    copy = Copy().begun()
    copy.puts(range(100))
    copy.do(Put(100, b"long" * 1_000))
    pieces = list(pieces_of(b"".join(copy.taking())))
    kinds = [type(piece) for piece in pieces[1:]]
    assert kinds == sorted(kinds, key=[SavedPart, SavedRows].index), "parts first: they wait for nothing"
    rows = [[row for row, _, _ in piece.rows] for piece in pieces if isinstance(piece, SavedRows)]
    assert len(rows) > 2 and [row for some in rows for row in some] == list(copy.log._bodies)
    assert Copy().restored(b"".join(copy.taking())) == copy.state()


def test_a_state_is_wanted_while_another_is_still_fetched():
    copy = Copy().begun()
    copy.puts(range(50))
    before = copy.state()
    first = copy.taking()
    fetched = next(first)
    copy.works()
    later = copy.state()
    second = b"".join(copy.taking())
    copy.puts(range(50, 60))
    assert Copy().restored(fetched + b"".join(first)) == before
    assert Copy().restored(second) == later


def test_a_state_that_nobody_fetches_any_more_costs_nothing():
    copy = Copy().begun()
    copy.puts(range(50))
    taking = copy.taking()
    next(taking)
    assert copy.host._frozen
    del taking
    assert not copy.host._frozen and not copy.jobs().parts._waiting
    assert Copy().restored(b"".join(copy.taking())) == copy.state()


def test_a_state_is_still_fetched_when_its_provider_takes_another():
    copy, other = Copy().begun(), Copy().begun()
    copy.puts(range(50))
    other.puts(range(500, 520), machine=2)
    before, theirs = copy.state(), other.state()
    taking = copy.taking()
    fetched = next(taking)
    assert copy.restored(b"".join(other.taking())) == theirs
    assert Copy().restored(fetched + b"".join(taking)) == before


def test_a_state_before_the_first_command_is_empty():
    copy = Copy().begun()
    copy.puts(range(5))
    assert copy.restored(b"") == ({}, {}, 0, -1)


def test_a_state_that_was_cut_off_is_refused():
    copy = Copy().begun()
    copy.puts(range(5))
    with pytest.raises(msgspec.DecodeError):
        Copy().restored(b"".join(copy.taking())[:-1])


def test_bodies_are_freed_when_extents_were_joined(monkeypatch):
    """An extent that was freed and the next one are one extent now, which begins where the first began."""
    monkeypatch.setattr(space, "EXTENTS_MAX", 8)
    copy = Copy().begun()
    copy.do(Put(0, b"stays for ever"))
    ((_, epoch),) = copy.do(Attach(7, 70))
    serial = 0

    def settled(jobs):
        nonlocal serial
        for job in jobs:
            serial += 1
            copy.do(Settle(7, epoch, job))
        copy.log.free()

    copy.do(Want(7, epoch, 1, 60_000))
    done = []
    for job in range(1, 400):
        copy.do(Put(job, b"x" * 100))
        done.append(job)
        if job % 7 == 0:  # every other extent or so is dead before its neighbour
            settled(done[::2])
            done = done[1::2]
    settled(done)
    for _ in range(3):
        copy.do(Put(1_000, b"x" * 400))
        copy.do(Put(1_001, b"x" * 400))
    copy.log.free()
    dead = [row for rows in copy.host.space.dead_rows(0, copy.log.row + 1) for row in rows]
    assert dead and not [row for row in dead if row in copy.log._bodies]
