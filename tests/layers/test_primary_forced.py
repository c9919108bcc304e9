"""A primary that was forced goes on from the last one that its members come from."""

from pluribus.layers.membership.primary import first_link, next_link
from pluribus.layers.membership.words import NO_BALLOT, Link, Past

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
