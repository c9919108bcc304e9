"""Objects under faults: a sample of the campaign, the mutants that it must find, and what its checkers call wrong."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.objects import (
    UNCERTAIN,
    all_handle_it,
    answers_are_the_askers,
    asks_end,
    guards_come_first,
    one_handles_it,
    queued_calls_are_done_once,
)
from pluribus.sim.machinery.campaign import play_seed
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import objects
from tests.mutants.hunt import assert_found, sample


def test_a_sample_of_seeds_breaks_no_promise():
    found = sample("objects", objects.FOUND, 2_000)
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


def test_a_seed_is_the_same_twice():
    assert play_seed("objects", 3).trace_hash == play_seed("objects", 3).trace_hash


@pytest.mark.parametrize("mutant", objects.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = objects.FOUND[mutant]
    assert_found(mutant, seed, sentence, "objects")


def told(*happenings: tuple) -> History:
    history = History()
    for at, (member, what, more) in enumerate(happenings):
        history.add(Happening(float(at), member, what, **{"body": b"x", **more}))
    return history


HANDLED = (2, "handled", {"group": "id:a"})
SETTLED = (0, "settled", {"promises": "id:a id:b", "members": (1, 2)})


def test_checkers_accept_what_is_right():
    assert (
        one_handles_it(
            told((1, "told", {}), HANDLED, SETTLED, (1, "asked", {"body": b"y"}), (2, "handled", {"body": b"y"}))
        )
        == 2
    )
    assert all_handle_it(told(SETTLED, (1, "broadcast", {}), HANDLED, (2, "handled", {"group": "id:b"}))) == 3
    assert answers_are_the_askers(told(HANDLED, (1, "answer", {"promises": "re x"}))) == 1
    assert asks_end(told((1, "asked", {}), (1, "over", {}), (3, "asked", {"body": b"y"}), SETTLED)) == 2
    assert guards_come_first(told((2, "guarded", {}), (2, "handled", {"promises": "target"}))) == 1
    assert queued_calls_are_done_once(told((2, "done", {}), (1, "result", {"promises": "re x"}))) == 2
    assert queued_calls_are_done_once(told((1, "result", {"promises": UNCERTAIN}))) == 1


@pytest.mark.parametrize(
    ("check", "story", "sentence"),
    [
        (one_handles_it, [(1, "told", {}), HANDLED, HANDLED], "handled 2 times"),
        (one_handles_it, [SETTLED, (1, "asked", {})], "nobody handled it"),
        (all_handle_it, [SETTLED, (1, "broadcast", {}), HANDLED], "0 times"),
        (all_handle_it, [HANDLED, HANDLED], "2 times"),
        (answers_are_the_askers, [HANDLED, (1, "answer", {"promises": "re y"})], "was answered 're y'"),
        (answers_are_the_askers, [(1, "answer", {"promises": "re x"})], "nobody handled it"),
        (asks_end, [(1, "asked", {}), SETTLED], "still waits"),
        (guards_come_first, [(2, "handled", {"promises": "target"}), (2, "guarded", {})], "before its preemptive"),
        (queued_calls_are_done_once, [(2, "done", {}), (2, "done", {})], "done 2 times"),
        (queued_calls_are_done_once, [(1, "result", {"promises": "re x"})], "nobody did it"),
        (queued_calls_are_done_once, [(2, "done", {}), (1, "result", {"promises": "re y"})], "returned 're y'"),
    ],
)
def test_checkers_find_what_is_wrong(check, story, sentence: str):
    with pytest.raises(Violation, match=sentence):
        check(told(*story))
