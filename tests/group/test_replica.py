"""The replica on a log that a test commits by hand."""

from collections.abc import Sequence

import pytest

from pluribus.core.errors import Closed, NotPrimary, Overflow, Refused, Uncertain
from pluribus.group import replica as replicas
from pluribus.group.log import Done
from pluribus.group.replica import LoggedMachine


class Tape:
    """A log of one place: what is submitted waits until the test says what becomes of it."""

    def __init__(self) -> None:
        self.applied = 0
        self.generation = 1
        self.waiting: list[tuple[bytes, Done]] = []
        self.barriers: list[Done] = []

    def submit(self, command: bytes, done: Done) -> None:
        self.waiting.append((command, done))

    def submit_many(self, commands: Sequence[bytes], done: Done) -> None:
        raise NotImplementedError

    def barrier(self, done: Done) -> None:
        self.barriers.append(done)

    def withdraw(self, done: Done) -> bool:
        return False

    def commit(self, *places: int) -> None:
        taken = [self.waiting[place] for place in places]
        first, self.applied = self.applied, self.applied + len(taken)
        self.on_commit(first, [command for command, _ in taken])
        for at, (command, done) in enumerate(taken):
            self.waiting.remove((command, done))
            done(first + at, None)


class Sum:
    def __init__(self) -> None:
        self.total = 0

    def apply(self, index: int, command: bytes) -> bytes:
        self.total += int(command)
        return b"%d" % self.total

    def snapshot(self) -> bytes:
        return b"%d" % self.total

    def restore(self, state: bytes) -> None:
        self.total = int(state or 0)


class Answers(list):
    def __call__(self, result: bytes, error: Exception | None) -> None:
        self.append(result if error is None else error)


@pytest.fixture
def tape() -> Tape:
    return Tape()


@pytest.fixture
def replica(tape: Tape) -> LoggedMachine[Sum]:
    return LoggedMachine("sums", tape, Sum(), session=10)


def test_a_result_goes_to_its_caller_once(tape: Tape, replica: LoggedMachine[Sum]):
    first, second = Answers(), Answers()
    replica.call(b"5", first)
    replica.call(b"7", second)
    assert first == [] and replica.machine.total == 0
    tape.commit(1)
    tape.commit(0)
    assert (first, second) == ([b"12"], [b"7"])
    replica.validate()


def test_what_the_machine_raises_is_its_callers(tape: Tape, replica: LoggedMachine[Sum]):
    answers = Answers()
    replica.call(b"five", answers)
    tape.commit(0)
    assert isinstance(answers[0], Refused) and "ValueError" in str(answers[0])
    assert tape.applied == 1, "it has its place in the log all the same"


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_what_depends_on_the_process_is_no_result(tape: Tape, replica: LoggedMachine[Sum], monkeypatch, error):
    """Another member may have applied it."""
    first, second = Answers(), Answers()
    replica.call(b"5", first)
    replica.call(b"7", second)

    def fail(index: int, command: bytes) -> bytes:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(replica.machine, "apply", fail)
        tape.commit(0)
    tape.commit(0)
    assert isinstance(first[0], Uncertain) and isinstance(second[0], Uncertain)
    assert replica.machine.total == 0, "nothing is applied behind the gap"
    with pytest.raises(Closed, match="open it again"):
        replica.call(b"1", Answers())


def test_what_is_uncertain_is_submitted_again_and_applied_once(tape: Tape, replica: LoggedMachine[Sum]):
    answers = Answers()
    replica.call(b"5", answers)
    command, done = tape.waiting.pop()
    tape.on_commit(0, [command])  # committed, and the caller's own log does not know
    tape.applied = 1
    assert answers == [b"5"], "it comes with the command itself"
    done(-1, Uncertain("cut off"))
    assert tape.waiting == [], "it has its answer"

    again = Answers()
    replica.call(b"2", again)
    command, done = tape.waiting.pop()
    done(-1, Uncertain("cut off"))
    assert again == [] and len(tape.waiting) == 1
    tape.on_commit(1, [command])  # the first came through after all
    assert again == [b"7"]
    tape.commit(0)
    assert (again, replica.machine.total) == ([b"7"], 7)


def test_a_call_can_be_asked_for_again_by_its_identity(tape: Tape, replica: LoggedMachine[Sum]):
    first, second = Answers(), Answers()
    key = replica.call(b"5", first, repeat=False)
    command, done = tape.waiting.pop()
    done(-1, Uncertain("cut off"))
    assert isinstance(first[0], Uncertain) and first[0].id == key
    tape.on_commit(0, [command])
    replica.call(b"1", Answers())
    tape.commit(0)
    replica.call(b"5", second, id=key)
    tape.commit(0)
    assert (second, replica.machine.total) == ([b"5"], 6)


def test_another_member_can_ask_for_it(tape: Tape, replica: LoggedMachine[Sum]):
    key = replica.call(b"5", Answers(), repeat=False)
    tape.commit(0)
    other_tape = Tape()
    other = LoggedMachine("sums", other_tape, Sum(), session=11)
    other_tape.on_restore(1, tape.on_snapshot())
    answers = Answers()
    other.call(b"5", answers, id=key)
    other_tape.commit(0)
    assert (answers, other.machine.total) == ([b"5"], 5)


def test_after_the_state_was_lost_nobody_knows(tape: Tape, replica: LoggedMachine[Sum]):
    answers = Answers()
    key = replica.call(b"5", answers)
    _, done = tape.waiting.pop()
    tape.generation = 2
    tape.on_restore(0, b"")
    done(-1, Uncertain("cut off"))
    tape.commit(0)
    assert isinstance(answers[0], Uncertain) and answers[0].id == key
    assert replica.machine.total == 0


def test_other_errors_are_final(tape: Tape, replica: LoggedMachine[Sum]):
    answers = Answers()
    replica.call(b"5", answers)
    tape.waiting.pop()[1](-1, NotPrimary("never sent"))
    assert isinstance(answers[0], NotPrimary)
    replica.validate()


def test_a_read_waits_for_the_barrier_and_repeats_it(tape: Tape, replica: LoggedMachine[Sum]):
    ready: list[object] = []
    replica.read(ready.append)
    tape.barriers.pop()(-1, Uncertain("cut off"))
    assert ready == [] and len(tape.barriers) == 1
    tape.barriers.pop()(0, None)
    assert ready == [None]


def test_closing_answers_everybody(tape: Tape, replica: LoggedMachine[Sum]):
    answers, ready = Answers(), []
    replica.call(b"5", answers)
    replica.read(ready.append)
    replica.close()
    assert isinstance(answers[0], Uncertain) and isinstance(ready[0], Closed)
    with pytest.raises(Closed):
        replica.call(b"5", answers)
    tape.waiting.pop()[1](-1, Uncertain("late"))
    assert len(answers) == 1


def test_calls_under_way_are_bounded(tape: Tape, replica: LoggedMachine[Sum], monkeypatch):
    monkeypatch.setattr(replicas, "CALLS_MAX", 3)
    for _ in range(3):
        replica.call(b"1", Answers())
    with pytest.raises(Overflow, match="3 calls"):
        replica.call(b"1", Answers())


def test_identities_that_were_never_called_are_forgotten_in_the_end(
    tape: Tape, replica: LoggedMachine[Sum], monkeypatch
):
    monkeypatch.setattr(replicas, "UNSETTLED_MAX", 5)
    ids = [replica.new_id() for _ in range(8)]
    replica.validate()
    answers = Answers()
    replica.call(b"3", answers, id=ids[-1])
    tape.commit(0)
    assert answers == [b"3"]
