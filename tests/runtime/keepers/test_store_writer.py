"""The store's one writer: completions on the loop and in order, many writes to a synchronisation, and errors to
everybody who waits."""

import asyncio
import signal
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from pluribus.core import limits
from pluribus.core.errors import BadInput, Closed, Overflow, Unavailable
from pluribus.core.ports import Append, Bounds, Cut, Put, Trim
from pluribus.runtime.keepers import store_writer as writer_module
from pluribus.runtime.keepers.store_writer import CALM, PATIENCE, PROBED, StoreWriter
from pluribus.store.memory import MemoryBackend
from pluribus.store.sqlite import SqliteBackend
from tests.harness import eventually, on_a_loop


class SlowBackend(SqliteBackend):
    """Commits when it is let; fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.let = threading.Event()
        self.committing = threading.Event()
        self.fail_on: bytes | None = None
        self.fail_commit = False
        self.fail_rollback = False
        self.threads: set[int] = set()

    def write(self, changes):
        super().write(changes)
        if any(isinstance(change, Append) and self.fail_on in change.rows for change in changes):
            raise Unavailable("no room")

    def commit(self):
        self.threads.add(threading.get_ident())
        self.committing.set()
        self.let.wait()
        if self.fail_commit:
            self.fail_commit = False
            raise Unavailable("the disk is gone")
        super().commit()

    def rollback(self):
        super().rollback()
        if self.fail_rollback:
            raise Unavailable("rollback, too")


@pytest.fixture
def backend():
    made = SlowBackend()
    yield made
    made.let.set()


def writer_on(backend) -> StoreWriter:
    return StoreWriter(backend, asyncio.get_running_loop())


@on_a_loop
async def test_completions_come_on_the_loop_in_the_order_of_submission():
    with closing(writer_on(SqliteBackend(":memory:"))) as writer:
        done = []
        for number in range(500):
            if number % 3:
                writer.append(
                    "log", [b"%d" % number], lambda error, n=number: done.append((n, error, threading.get_ident()))
                )
            else:
                writer.put(
                    "key", b"%d" % number, lambda error, n=number: done.append((n, error, threading.get_ident()))
                )
        assert done == [], "nothing completes inside of the call"
        await eventually(lambda: len(done) == 500)
        assert done == [(number, None, threading.get_ident()) for number in range(500)]
        assert writer.get("key") == b"498"
        assert writer.submissions == 500


def test_many_writes_share_a_synchronisation(backend):
    @on_a_loop
    async def run():
        writer, done = writer_on(backend), []
        writer.append("log", [b"first"], done.append)
        await eventually(backend.committing.is_set)
        for number in range(1_000):
            writer.append("log", [b"%d" % number], done.append)
        assert done == []
        backend.let.set()
        await eventually(lambda: len(done) == 1_001)
        assert done == [None] * 1_001
        assert writer.commits == 2
        assert backend.threads.isdisjoint({threading.get_ident()}) and len(backend.threads) == 1
        assert writer.end("log") == 1_001
        writer.close()

    run()


async def written(writer, count):
    """One after another; how many of them in a turn of the loop."""
    before = writer.in_turn
    for _ in range(count):
        done = asyncio.get_running_loop().create_future()
        writer.append("log", [b"row"], done.set_result)
        assert not done.done(), "nothing completes inside of the call"
        assert await done is None
    return writer.in_turn - before


@pytest.fixture
def patient(monkeypatch):
    """However slow the machine is, a commit is quick."""
    monkeypatch.setattr(writer_module, "QUICK_S", 60.0)


def test_who_is_alone_and_quick_commits_in_the_loops_turn_and_asks_the_thread_now_and_then(patient):
    @on_a_loop
    async def run():
        with closing(writer_on(SqliteBackend(":memory:"))) as writer:
            assert await written(writer, 2 * CALM) == 0, "it does not say that it is alone"
            writer.alone = lambda: True
            assert 0.9 < await written(writer, 10 * PROBED) / (10 * PROBED) < 1
            writer.alone = lambda: False
            assert await written(writer, 10) == 0
            assert writer.end("log") == writer.submissions == writer.commits

    run()


async def answered_late(writer):
    """A write, and a turn after it another one, as a program makes that settles what it has and then sends more."""
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    writer.append("log", [b"settled"], first.set_result)
    loop.call_soon(writer.append, "log", [b"sent"], second.set_result)
    assert await first is None and await second is None


def test_a_write_that_just_misses_a_commit_teaches_the_next_ones_to_wait_for_it(patient):
    @on_a_loop
    async def run():
        with closing(writer_on(SqliteBackend(":memory:"))) as writer:
            writer.alone = lambda: True
            for _ in range(3):
                await answered_late(writer)
            before, in_turn = writer.commits, writer.in_turn
            for _ in range(PROBED):
                await answered_late(writer)
            assert writer.commits == before + PROBED, "both share a commit"
            assert writer.in_turn > in_turn, "so that nothing comes while the disk is at work"
            assert writer._patience == PATIENCE
            await written(writer, PATIENCE)
            assert writer._patience == 0, "nothing has joined, so nothing waits any longer"
            assert writer.end("log") == writer.submissions

    run()


def test_a_server_never_commits_in_the_loops_turn(patient):
    class Server(SqliteBackend):
        embedded = False

    @on_a_loop
    async def run():
        with closing(writer_on(Server(":memory:"))) as writer:
            writer.alone = lambda: True
            assert await written(writer, 2 * CALM) == 0

    run()


def test_a_slow_commit_sends_the_next_ones_to_the_thread(patient, monkeypatch):
    @on_a_loop
    async def run():
        with closing(writer_on(SqliteBackend(":memory:"))) as writer:
            writer.alone = lambda: True
            await written(writer, 2 * CALM)
            monkeypatch.setattr(writer_module, "QUICK_S", 0.0)
            assert await written(writer, 1) == 1
            monkeypatch.setattr(writer_module, "QUICK_S", 60.0)
            assert await written(writer, CALM) == 0
            assert await written(writer, 1) == 1

    run()


def test_a_store_that_has_to_tidy_up_does_so_in_the_thread_and_the_next_commit_is_in_the_turn_again(
    patient, monkeypatch
):
    class Tidy(SqliteBackend):
        full = False
        laden = property(lambda self: self.full, lambda self, laden: None)

    @on_a_loop
    async def run():
        backend = Tidy(":memory:")
        with closing(writer_on(backend)) as writer:
            writer.alone = lambda: True
            await written(writer, CALM)
            backend.full = True
            monkeypatch.setattr(writer_module, "QUICK_S", 0.0)
            assert await written(writer, 3) == 0
            backend.full = False
            assert await written(writer, 1) == 1, "it was slow, and that was known before"
            assert await written(writer, 1) == 0, "it was slow, and that was not"

    run()


def test_what_is_submitted_while_the_disk_works_keeps_the_thread_at_it(backend, patient):
    @on_a_loop
    async def run():
        writer, done = writer_on(backend), []
        writer.alone = lambda: True
        for _ in range(2 * CALM):
            backend.let.clear()
            backend.committing.clear()
            writer.append("log", [b"row"], done.append)
            await eventually(backend.committing.is_set)
            writer.append("log", [b"meanwhile"], done.append)
            backend.let.set()
            await eventually(lambda: len(done) == writer.submissions)
        assert writer.in_turn == 0 and done == [None] * 4 * CALM
        writer.close()

    run()


def test_reads_and_the_end_do_not_wait_for_the_turn(patient):
    @on_a_loop
    async def run():
        writer, done = writer_on(SqliteBackend(":memory:")), []
        writer.alone = lambda: True
        assert await written(writer, CALM + 1) == 1
        writer.append("log", [b"read"], done.append)
        writer.append("log", [b"read, too"], done.append)
        assert writer.read("log", CALM + 1, CALM + 3) == [b"read", b"read, too"]
        assert writer.in_turn == 1, "the thread has written them"
        await eventually(lambda: done == [None, None])
        writer.append("log", [b"last"], done.append)
        writer.close()
        assert writer.finished == writer.submissions

    run()


def test_a_synchronisation_has_a_bound(backend, monkeypatch):
    monkeypatch.setattr(writer_module, "STORE_COMMIT_MAX", 100)

    @on_a_loop
    async def run():
        writer, done = writer_on(backend), []
        writer.append("log", [b"first"], done.append)
        await eventually(backend.committing.is_set)
        for number in range(1_000):
            writer.append("log", [b"%d" % number], done.append)
        backend.let.set()
        await eventually(lambda: len(done) == 1_001)
        assert writer.commits == 11
        writer.close()

    run()


def test_an_error_goes_to_those_whose_write_it_was_and_the_places_stay_right(backend):
    @on_a_loop
    async def run():
        writer, done = writer_on(backend), []
        writer.append("log", [b"kept"], lambda error: done.append(("kept", error)))
        await eventually(backend.committing.is_set)
        backend.fail_on = b"bad"
        writer.append("log", [b"good"], lambda error: done.append(("good", error)))
        writer.append("log", [b"bad"], lambda error: done.append(("bad", error)))
        writer.write([Append("log", [b"behind it"], at=3)], lambda error: done.append(("behind", error)))
        writer.put("key", b"x", lambda error: done.append(("key", error)))
        backend.let.set()
        await eventually(lambda: len(done) == 5)
        assert [name for name, _ in done] == ["kept", "good", "bad", "behind", "key"]
        assert [type(error) for _, error in done] == [
            type(None),
            type(None),
            Unavailable,
            BadInput,
            type(None),
        ]
        assert writer.bounds("log") == Bounds(0, 2) and writer.get("key") == b"x"
        writer.append("log", [b"next"], lambda error: done.append(("next", error)))
        await eventually(lambda: len(done) == 6)
        assert done[-1] == ("next", None)
        assert writer.read("log", 0, 9) == [b"kept", b"good", b"next"]
        writer.close()

    run()


def test_a_write_is_all_there_or_not_at_all(tmp_path):
    @on_a_loop
    async def run():
        with closing(writer_on(SqliteBackend(tmp_path / "store.db"))) as writer:
            done = []
            writer.write([Append("log", [b"0", b"1"]), Put("key", b"x"), Trim("log", 1)], done.append)
            writer.write([Append("log", [b"2"]), Put("key", b"y"), Cut("log", 9)], done.append)
            await eventually(lambda: len(done) == 2)
            assert done[0] is None and isinstance(done[1], BadInput)
            assert writer.read("log", 0, 9) == [b"1"] and writer.get("key") == b"x"

    run()


def test_what_is_committed_is_read_while_the_disk_is_busy(tmp_path):
    class Busy(SlowBackend):
        def __init__(self):
            super().__init__()
            self.close()
            SqliteBackend.__init__(self, tmp_path / "store.db")

    backend = Busy()
    backend.let.set()

    @on_a_loop
    async def run():
        with closing(writer_on(backend)) as writer:
            done = []
            writer.append("log", [b"0", b"1"], done.append)
            assert writer.read("log", 0, 2) == [b"0", b"1"]
            await eventually(lambda: len(done) == 1)
            backend.let.clear()
            backend.committing.clear()
            writer.append("log", [b"2"], done.append)
            await eventually(backend.committing.is_set)
            assert writer.read("log", 0, 2) == [b"0", b"1"], "it would wait for ever if it waited for the writer"
            assert len(done) == 1
            backend.let.set()
            assert writer.read("log", 0, 3) == [b"0", b"1", b"2"]
            writer.write([Cut("log", 1), Append("log", [b"new"])], done.append)
            assert writer.read("log", 0, 2) == [b"0", b"new"], "a tail that is being rewritten is waited for"

    run()


def test_a_failed_synchronisation_and_a_failed_rollback_leave_the_writer_alive(backend):
    @on_a_loop
    async def run():
        writer, done = writer_on(backend), []
        backend.fail_commit = backend.fail_rollback = True
        backend.let.set()
        writer.append("log", [b"lost"], done.append)
        await eventually(lambda: done)
        assert str(done[0]) == "the disk is gone"
        writer.append("log", [b"kept"], done.append)
        await eventually(lambda: len(done) == 2)
        assert done[1] is None
        assert writer.read("log", 0, 9) == [b"kept"]
        writer.close()

    run()


@on_a_loop
async def test_a_completion_that_raises_does_not_keep_others_from_hearing():
    complaints, done = [], []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["exception"]))

    def bad(error):
        raise KeyError("a bug of the caller")

    with closing(writer_on(SqliteBackend(":memory:"))) as writer:
        for completion in (done.append, bad, done.append):
            writer.append("log", [b"x"], completion)
        await eventually(lambda: len(done) == 2)
        assert [type(complaint) for complaint in complaints] == [KeyError]


@on_a_loop
async def test_rows_are_taken_as_they_are_when_submitted():
    with closing(writer_on(SqliteBackend(":memory:"))) as writer:
        rows, done = [b"1", b"2"], []
        writer.append("log", rows, done.append)
        rows.append(b"3")
        assert writer.read("log", 0, 9) == [b"1", b"2"], "a read sees everything that was submitted before it"


def test_more_than_may_wait_is_refused(backend, monkeypatch):
    monkeypatch.setattr(writer_module, "STORE_SUBMISSIONS_MAX", 10)

    @on_a_loop
    async def run():
        writer, done = writer_on(backend), []
        writer.append("log", [b"first"], done.append)
        await eventually(backend.committing.is_set)
        for _ in range(9):
            writer.append("log", [b"x"], done.append)
        with pytest.raises(Overflow, match="10 writes wait"):
            writer.append("log", [b"one too many"], done.append)
        backend.let.set()
        await eventually(lambda: len(done) == 10)
        assert writer.end("log") == 10
        writer.close()

    run()


def test_closing_writes_everything_first_and_then_refuses(tmp_path):
    @on_a_loop
    async def run():
        writer, done = writer_on(SqliteBackend(tmp_path / "store.db")), []
        for number in range(300):
            writer.append("log", [b"%d" % number], done.append)
        writer.close()
        writer.close()
        await eventually(lambda: len(done) == 300)
        for call in (
            lambda: writer.append("log", [b"x"], done.append),
            lambda: writer.put("key", b"x", done.append),
            lambda: writer.read("log", 0, 1),
            lambda: writer.get("key"),
            lambda: writer.end("log"),
        ):
            with pytest.raises(Closed):
                call()

    run()
    with closing(SqliteBackend(tmp_path / "store.db")) as again:
        assert again.bounds("log").end == 300


def test_a_loop_that_was_closed_first_is_no_reason_to_lose_what_was_submitted(backend):
    async def submit():
        writer = writer_on(backend)
        writer.append("log", [b"row"], lambda error: pytest.fail("nobody is there"))
        return writer

    writer = asyncio.run(submit())
    backend.let.set()
    assert writer.read("log", 0, 1) == [b"row"]
    writer.close()


def test_limits_leave_room_for_several_synchronisations():
    assert limits.STORE_COMMIT_MAX < limits.STORE_SUBMISSIONS_MAX


WRITES_FOR_EVER = """
import asyncio, sys
from pluribus.runtime.keepers.store_writer import StoreWriter
from pluribus.store.memory import MemoryBackend
from pluribus.store.sqlite import SqliteBackend

async def main():
    writer = StoreWriter(SqliteBackend(sys.argv[1]), asyncio.get_running_loop())
    count = acknowledged = 0
    def done(error, upto):
        nonlocal acknowledged
        if error is not None:
            raise error
        acknowledged = upto
        print(upto, flush=True)
    while True:
        rows = [b"row %d " % number * 50 for number in range(count, count + 7)]
        count += 7
        writer.append("log", rows, lambda error, upto=count: done(error, upto))
        await asyncio.sleep(0)
        while count - acknowledged > 7_000:  # a disk slower than this loop would otherwise overflow the store
            await asyncio.sleep(0.001)

asyncio.run(main())
"""


def test_what_was_acknowledged_survives_a_kill_in_the_middle_of_writing(tmp_path):
    path = tmp_path / "store.db"
    with subprocess.Popen([sys.executable, "-c", WRITES_FOR_EVER, path], stdout=subprocess.PIPE, text=True) as process:
        for _ in range(200):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        # Whole lines only: the last one may have been cut by the kill.
        rest = [line for line in process.stdout if line.endswith("\n")]
    assert process.returncode == -signal.SIGKILL
    acknowledged = int(rest[-1]) if rest else 200 * 7
    with closing(SqliteBackend(path)) as backend:
        assert backend.bounds("log").end >= acknowledged
        rows = backend.read("log", 0, backend.bounds("log").end)
        assert list(rows) == [b"row %d " % number * 50 for number in range(len(rows))]
        assert len(rows) % 7 == 0, "one submission is all there or not at all"


def test_a_store_that_cannot_say_its_bounds_after_a_commit_has_committed_all_the_same():
    async def scenario():
        backend = MemoryBackend()
        writer, done = StoreWriter(backend, asyncio.get_running_loop()), asyncio.Event()
        assert writer.read("a", 0, 1) == []

        def commit():
            MemoryBackend.commit(backend)
            backend.bounds = lambda log: 1 / 0

        backend.commit = commit
        writer.append("a", [b"row"], lambda error: None if error else done.set())
        async with asyncio.timeout(5):
            await done.wait()
        del backend.bounds
        assert writer.read("a", 0, 9) == [b"row"]
        writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("place", ["file", ":memory:"])
@on_a_loop
async def test_rows_are_fetched_by_a_thread_that_takes_them_apart(tmp_path, place):
    backend = SqliteBackend(tmp_path / "rows.db" if place == "file" else place)
    with closing(writer_on(backend)) as writer:
        written = []
        writer.append("log", [b"row %d" % number for number in range(10)], written.append)
        await eventually(lambda: written == [None])
        found = []

        def work(rows):
            return threading.get_ident(), [None if row is None else row.upper() for row in rows]

        writer.fetch("log", [1, 2, 5, 40], work, lambda result, error: found.append((result, error)))
        assert found == [], "nothing comes inside of the call"
        await eventually(lambda: found)
        ((thread, rows), error) = found[0]
        assert error is None and rows == [b"ROW 1", b"ROW 2", b"ROW 5", None] and thread != threading.get_ident()


@on_a_loop
async def test_what_fails_in_the_reader_thread_is_told_and_the_next_is_answered(tmp_path):
    with closing(writer_on(SqliteBackend(tmp_path / "rows.db"))) as writer:
        written, found = [], []
        writer.append("log", [b"row"], written.append)
        await eventually(lambda: written == [None])
        writer.fetch("log", [0], lambda rows: rows[0].nothing, lambda result, error: found.append(error))
        writer.fetch("log", [0], list, lambda result, error: found.append(result))
        await eventually(lambda: len(found) == 2)
        assert isinstance(found[0], AttributeError) and found[1] == [b"row"]


@on_a_loop
async def test_a_store_that_was_set_aside_is_fetched_from_anew(tmp_path):
    with closing(writer_on(SqliteBackend(tmp_path / "rows.db"))) as writer:
        written, found = [], []
        writer.append("log", [b"old"], written.append)
        await eventually(lambda: written == [None])
        writer.fetch("log", [0], list, lambda result, error: found.append(result))
        await eventually(lambda: found == [[b"old"]])
        writer.renew([Append("log", [b"new"])])
        writer.fetch("log", [0], list, lambda result, error: found.append(result))
        await eventually(lambda: found == [[b"old"], [b"new"]])
