"""Partial views: bounded, never of oneself, and a crowd of them hangs together when three in ten are gone."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from pluribus.layers.spread.partial import BURIED_SWAPS, PartialView

SIZE = 12
HERE = ("here", 1)


def crowd(members: int, seed: int) -> dict[int, PartialView]:
    """Everybody knows the one before it: a chain, from which swaps have to make something better."""
    views = {me: PartialView(me, SIZE, Random(f"{seed}/{me}")) for me in range(1, members + 1)}
    for me, view in views.items():
        if me > 1:
            view.add(me - 1, HERE)
    return views


def swap_all(views: dict[int, PartialView], rounds: int, swapped: int = 5) -> None:
    for _ in range(rounds):
        for me, view in list(views.items()):
            begun = view.begin_swap(swapped, HERE)
            if begun is None:
                continue
            partner, place, offered = begun
            if partner in views:
                given_back = views[partner].answer_swap(swapped, offered)
                view.end_swap(partner, place, given_back)
            else:
                view.bury(partner)
            assert me not in view


def parts(views: dict[int, PartialView]) -> int:
    beside: dict[int, set[int]] = {me: set() for me in views}
    for me, view in views.items():
        for other in view.members:
            if other in views:
                beside[me].add(other)
                beside[other].add(me)
    found, left = 0, set(views)
    while left:
        found += 1
        waiting = [left.pop()]
        while waiting:
            new = beside[waiting.pop()] & left
            left -= new
            waiting += new
    return found


def test_a_crowd_hangs_together_when_three_in_ten_die_at_once():
    for seed in range(5):
        views = crowd(500, seed)
        swap_all(views, 25)
        for view in views.values():
            view.validate()
        known = [sum(me in view for view in views.values()) for me in views]
        assert min(known) >= 2 and max(known) <= 4 * SIZE, "everybody is known to some, nobody to all"
        for gone in Random(seed).sample(sorted(views), 150):
            del views[gone]
        assert parts(views) == 1
        swap_all(views, 2 * SIZE)
        assert parts(views) == 1
        pointers = [member for view in views.values() for member in view.members]
        assert sum(member not in views for member in pointers) == 0, "who is gone is forgotten"


def test_who_was_buried_comes_back_by_itself_only():
    view = PartialView(1, SIZE, Random(1))
    view.add(2, HERE)
    assert view.bury(2) and 2 not in view
    view.answer_swap(3, [(2, HERE, 0)])
    view.add(2, HERE)
    assert view.replace_one(2, HERE) is None and 2 not in view
    view.heard(2)
    view.add(2, HERE)
    assert 2 in view
    view.bury(3)
    for _ in range(BURIED_SWAPS):
        view.begin_swap(3, HERE)
        view.heard(2)
        view.add(2, HERE)
    view.add(3, HERE)
    assert 3 in view


@given(
    st.lists(st.tuples(st.sampled_from("abcdr"), st.integers(1, 30), st.integers(0, 50)), max_size=60), st.integers()
)
def test_whatever_comes_a_view_is_bounded_and_never_of_oneself(steps, seed):
    view = PartialView(7, 4, Random(seed))
    for what, member, age in steps:
        if what == "a":
            view.add(member, HERE, age)
        elif what == "b":
            view.bury(member)
        elif what == "c":
            view.answer_swap(2, [(member, HERE, age), (member + 1, HERE, age)])
        elif what == "d":
            begun = view.begin_swap(3, HERE)
            if begun is not None and age % 2:
                view.end_swap(begun[0], begun[1], [(member, HERE, age)])
        else:
            before = len(view)
            pointer = view.replace_one(member, HERE)
            assert pointer is None or len(view) == before
        view.validate()
