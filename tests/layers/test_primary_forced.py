"""A primary that was forced goes on from the last one that its members come from."""

import pytest

from pluribus.layers.membership.attempt import Attempt
from pluribus.layers.membership.primary import first_link, next_link
from pluribus.layers.membership.words import NO_BALLOT, Joined, Link, Past
from tests.mutants.hunt import released
from tests.mutants.replicas import Reckless

LAST = Link(7, 3, (4, 1), (1, 2, 3, 4, 5))
OTHER = Link(9, 1, (2, 6), (6,))
BALLOT = (8, 1)


def test_those_who_come_from_the_same_primary_go_on_from_there():
    pasts = {1: Past(LAST), 2: Past(LAST), 6: Past(OTHER), 7: Past(None)}
    views = dict.fromkeys(pasts, (5, 1))
    assert next_link(BALLOT, (1, 2, 6, 7), pasts, views, founders=1) is None, "most of the last primary are missing"
    link = first_link(BALLOT, (1, 2, 6, 7), pasts)
    assert link.after == LAST.view
    assert link.epoch == LAST.epoch + 1
    assert link.lineage not in (LAST.lineage, OTHER.lineage)


def test_the_very_first_primary_comes_after_none():
    pasts = {1: Past(None), 2: Past(None)}
    link = next_link(BALLOT, (1, 2), pasts, dict.fromkeys(pasts, (1, 1)), founders=2)
    assert link is not None
    assert link.after == NO_BALLOT


def answer(member: int, last: Link | None, held: int, reached: int) -> Joined:
    alone = (6, member)
    return Joined(BALLOT, alone, alone, [member], [], [], (0, 0), [], Past(last), (held, held + 1), (reached, reached))


@pytest.mark.parametrize(
    ("forced", "places", "limbo"),
    [
        pytest.param(True, [(9, 5), (8, 6)], (6, 6), id="as far as one of them has delivered"),
        pytest.param(True, [(9, 5), (4, 4)], (4, 5), id="and as all hold it"),
        pytest.param(False, [(9, 5), (8, 6), (9, 5)], (8, 9), id="most of them wait for nobody"),
    ],
)
def test_who_is_forced_goes_no_further_than_somebody_has_delivered(forced, places, limbo):
    assert limbo_of(forced, places) == limbo


def test_a_mutant_that_goes_as_far_as_all_hold_is_seen():
    with released(Reckless):
        assert limbo_of(True, [(9, 5), (8, 6)]) == (8, 9)


def limbo_of(forced, places):
    members = list(range(1, 1 + len(places)))
    made = Attempt(BALLOT, members, {}, 0.0)
    made.answers = {member: answer(member, LAST, *of) for member, of in zip(members, places, strict=True)}
    proposal = made.propose(members, 0.0, forced=forced)
    assert proposal.link is not None and proposal.link.after == LAST.view
    assert (proposal.link.lineage != LAST.lineage) == forced
    return made.limbo
