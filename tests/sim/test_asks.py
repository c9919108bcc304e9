"""Questions under faults: a sample of the campaign, the mutants that it must find, and what its checkers call wrong."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import Violation
from pluribus.layers.membership.words import REGROUPS_MAX
from pluribus.runtime.bus import VIEWS
from pluribus.sim.checkers.asks import (
    ANSWERS,
    LATE,
    NO_MEMBERS,
    UNANSWERED,
    answers_are_given,
    asks_are_answered,
    asks_end,
    asks_reach,
    stable_is_everywhere,
)
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import asking
from tests.mutants.hunt import assert_found, sample

ONCE_FAILED = (3, 5, 21, 24, 47, 139)
"""A direct stream whose receiver had lost sight of the sender, and not the other way round, never went on. A group that
was joined again took a view of the membership that it had left for its own."""


def test_a_sample_of_seeds_breaks_no_promise():
    found = sample("asks", asking.FOUND, *ONCE_FAILED)
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.parametrize("mutant", asking.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = asking.FOUND[mutant]
    assert_found(mutant, seed, sentence, "asks")


def test_a_direct_stream_goes_on_when_only_its_receiver_lost_sight_of_the_other():
    async def main() -> None:
        async with pluribus.sim.world(members=2, seed=1, stack=VIEWS) as world:
            one, other = await asyncio.gather(*[bus.group("x") for bus in world.buses])
            await one.wait_for(2)
            for number in range(5):
                await other.send(number, to=one.me)
                assert (await one.receive(timeout=5)).body == number
            world.pause(1, 6)
            alone = [view async for view in _until(one, 1)]
            assert len(alone[-1]) == 1 and len(other.view) == 2
            await one.wait_for(2, timeout=30)
            for number in range(5, 10):
                await other.send(number, to=one.me)
            assert [(await one.receive(timeout=5)).body for _ in range(5)] == [5, 6, 7, 8, 9]

    async def _until(group: pluribus.Group, members: int):
        async for view in group.views():
            yield view
            if len(view) == members:
                return

    pluribus.sim.run(main())


def told(*happenings: tuple) -> History:
    history = History()
    for at, (member, what, more) in enumerate(happenings):
        history.add(Happening(float(at), member, what, "x", **{"body": b"?", **more}))
    return history


def asked(replies: str, how: str, *, members=(1, 2, 3), later=None, answers=(), errors=()) -> History:
    """1 asks in a view of these members; later the view is another; these answer."""
    gone = [(1, "view", {"members": later})] if later is not None else []
    return told(
        (1, "view", {"members": members}),
        (1, "ask", {"promises": replies}),
        *[(member, "heard", {}) for member in members],
        *gone,
        *[(member, "reply", {"id": (member, 5)}) for member in (*answers, *errors)],
        *[(1, "answer", {"id": (member, 5)}) for member in answers],
        *[(1, "answer", {"id": (member, 5), "orphan": True}) for member in errors],
        (1, "over", {"promises": how}),
    )


def two_views(*others: tuple, how: str, second: int = 2) -> History:
    """1 and 2 are to be in view 1, where 1 asks and alone is known to hear it, and then in a second one; meanwhile 2 is
    shown these views, each with its stamp."""
    return told(
        *[(2, "view", {"id": (stamp, 0), "members": members}) for stamp, members in others],
        (1, "view", {"id": (1, 0), "members": (1, 2)}),
        (1, "ask", {"promises": "2"}),
        (1, "heard", {}),
        (1, "view", {"id": (second, 0), "members": (1, 2)}),
        (1, "reply", {"id": (1, 5)}),
        (1, "answer", {"id": (1, 5)}),
        (1, "over", {"promises": how}),
    )


@pytest.mark.parametrize(
    "right",
    [
        # 2 had left view 1, or had never been in it, before 1 came to it. So it has never heard the question.
        two_views((1, (1, 2)), (1 + REGROUPS_MAX, (2,)), how=NO_MEMBERS, second=2 * REGROUPS_MAX),
        two_views((0, (1, 2)), (1 + REGROUPS_MAX, (2,)), how=NO_MEMBERS, second=2 * REGROUPS_MAX),
        two_views(how=NO_MEMBERS, second=REGROUPS_MAX),
        asked("all", ANSWERS, answers=(1, 2, 3)),
        asked("all", ANSWERS, answers=(1, 2), errors=(3,)),
        asked("all", ANSWERS, answers=(1,), later=(1,)),
        asked("majority", ANSWERS, answers=(1, 3)),
        asked("1", ANSWERS, answers=(3,)),
        asked("2", NO_MEMBERS, later=(1,)),
        asked("1", UNANSWERED, errors=(1, 2, 3)),
        asked("all", LATE, answers=(1, 2)),
    ],
)
def test_checkers_accept_what_is_right(right: History):
    assert answers_are_given(right) >= 0 and asks_end(right) == 1 and asks_are_answered(right) == 1


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (asked("all", ANSWERS, answers=(1, 2)), "who was there"),
        (asked("majority", ANSWERS, answers=(1,)), "1 of 2 good"),
        (asked("2", ANSWERS, answers=(1,), errors=(2,)), "1 of 2 good"),
        # 2 comes from an earlier view without 1, and is slow: it will be shown view 1, and hear the question.
        (two_views((0, (2,)), how=NO_MEMBERS), "could still answer"),
        (two_views((0, (2,)), (1, (1, 2)), how=NO_MEMBERS, second=REGROUPS_MAX), "could still answer"),
        (asked("1", NO_MEMBERS), "could still answer"),
        (asked("all", NO_MEMBERS, later=(1, 2)), "could still answer"),
        (asked("1", UNANSWERED, errors=(1, 2)), "could still answer"),
        (asked("all", LATE, answers=(1, 2), later=(1, 2)), "in vain"),
    ],
)
def test_checkers_find_what_is_wrong(wrong: History, sentence: str):
    with pytest.raises(Violation, match=sentence):
        asks_are_answered(wrong)


@pytest.mark.parametrize(
    ("story", "sentence"),
    [
        ([(2, "reply", {"id": (2, 5)}), (1, "answer", {"id": (2, 5)})], "never delivered"),
        ([(2, "heard", {}), (1, "answer", {"id": (2, 5)})], "is said to have"),
        ([(2, "heard", {}), (2, "reply", {"id": (2, 5)}), *[(1, "answer", {"id": (2, 5)})] * 2], "twice"),
    ],
)
def test_answers_that_nobody_gave_are_found(story, sentence: str):
    with pytest.raises(Violation, match=sentence):
        answers_are_given(told(*story))


def test_questions_that_never_end_or_do_not_reach_everybody_are_found():
    with pytest.raises(Violation, match="still waits"):
        asks_end(told((1, "ask", {"promises": "all"})))
    story = told((0, "settled", {"members": (1, 2)}), (1, "ask", {"promises": "all"}), (1, "answer", {"id": (1, 5)}))
    with pytest.raises(Violation, match="1 of 2 answered"):
        asks_reach(story)


def test_a_message_that_is_said_to_be_everywhere_and_is_not_is_found():
    view, send = (1, "view", {"members": (1, 2)}), (1, "send", {})
    delivered, stable = (2, "deliver", {}), (1, "stable", {})
    assert stable_is_everywhere(told(view, send, (1, "deliver", {}), delivered, stable)) == 1
    assert stable_is_everywhere(told(view, send, (1, "uncertain", {}))) == 0
    assert stable_is_everywhere(told(view, send, (1, "deliver", {}), (1, "view", {"members": (1,)}), stable)) == 1
    with pytest.raises(Violation, match="has not delivered"):
        stable_is_everywhere(told(view, send, (1, "deliver", {}), stable, delivered))
