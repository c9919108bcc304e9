"""Giving way: offered again while it is quick, rested from when somebody keeps the core."""

from __future__ import annotations

from pluribus.engines.courtesy import LONG_S, REST_TIMES, Courtesy


class Neighbour:
    """Keeps the core for ``takes_s`` whenever it is offered."""

    def __init__(self) -> None:
        self.now = 100.0
        self.takes_s = 0.0
        self.offers = 0

    def take(self) -> None:
        self.offers += 1
        self.now += self.takes_s


def test_a_quick_offer_is_made_again_and_again() -> None:
    neighbour = Neighbour()
    courtesy = Courtesy(neighbour.take, lambda: neighbour.now)
    for _ in range(5):
        courtesy.give_way()
    assert neighbour.offers == 5


def test_who_keeps_the_core_is_not_offered_it_for_a_while() -> None:
    neighbour = Neighbour()
    courtesy = Courtesy(neighbour.take, lambda: neighbour.now)
    neighbour.takes_s = 10 * LONG_S
    courtesy.give_way()
    courtesy.give_way()
    assert neighbour.offers == 1
    neighbour.now += neighbour.takes_s * REST_TIMES
    courtesy.give_way()
    assert neighbour.offers == 2


def test_a_system_without_such_a_call_is_left_alone() -> None:
    Courtesy(None).give_way()
