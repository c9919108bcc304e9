"""Waiters are told once: when the stream is far enough, or when that cannot be known any more."""

import random

from pluribus.core.ids import ALL
from pluribus.group.confirmations import Confirmations

GROUP, ME, OTHER = 9, 1, 2
TO_ALL, TO_OTHER = (GROUP, ALL), (GROUP, OTHER)


def waiting(*uptos: int, stream: tuple[int, int] = TO_ALL) -> tuple[Confirmations, dict[int, list[bool]]]:
    confirmations, told = Confirmations(), {upto: [] for upto in uptos}
    for upto in uptos:
        confirmations.wait(stream, upto, told[upto].append)
    return confirmations, told


def test_those_who_wait_for_no_more_are_told_in_any_order_of_asking():
    uptos = random.Random(1).sample(range(1, 100), 50)
    confirmations, told = waiting(*uptos)
    confirmations.confirmed(TO_ALL, 40)
    assert all(found == ([True] if upto <= 40 else []) for upto, found in told.items())
    confirmations.confirmed(TO_OTHER, 99)
    confirmations.confirmed(TO_ALL, 99)
    assert all(found == [True] for found in told.values()) and not len(confirmations)


def test_what_was_dropped_is_not_known():
    confirmations, told = waiting(1, 2, 3)
    confirmations.dropped(GROUP, [(ME, 1)])
    confirmations.confirmed(TO_ALL, 3)
    assert told == {1: [True], 2: [False], 3: [True]}


def test_a_single_receiver_that_is_gone_confirms_nothing():
    confirmations, told = waiting(1, stream=TO_OTHER)
    confirmations.members_changed(GROUP, (ME, OTHER))
    assert len(confirmations) == 1
    confirmations.members_changed(GROUP, (ME,))
    assert told == {1: [False]} and not len(confirmations)


def test_a_member_that_was_away_makes_everything_uncertain():
    confirmations, told = waiting(1, 2)
    confirmations.uncertain(GROUP)
    assert told == {1: [False], 2: [False]}


def test_who_gives_up_is_forgotten():
    confirmations, told = waiting(1)
    forget = confirmations.wait(TO_ALL, 1, lambda has: told[1].append(not has))
    forget()
    forget()
    confirmations.confirmed(TO_ALL, 1)
    assert told == {1: [True]}
