"""The bare kernel: events in the order of time, equal times in the order of asking, and a bound on all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import SimulationError
from pluribus.sim.machinery import kernel as kernel_module
from pluribus.sim.machinery.kernel import Kernel


@given(st.lists(st.sampled_from([0.0, 0.1, 0.25, 1.0, 7.5])))
def test_events_run_by_time_then_by_the_order_of_asking(times: list[float]):
    kernel, ran = Kernel(), []
    for number, time_s in enumerate(times):
        kernel.at(time_s, lambda number=number: ran.append((kernel.now, number)))
    kernel.run(10.0)
    assert ran == sorted((time_s, number) for number, time_s in enumerate(times))
    assert kernel.events == len(times)
    assert kernel.now == 10.0


def test_a_past_time_means_now():
    kernel, ran = Kernel(), []
    kernel.run(5.0)
    kernel.at(1.0, lambda: ran.append(kernel.now))
    kernel.run(5.0)
    assert ran == [5.0]


def test_events_may_ask_for_events():
    kernel, ran = Kernel(), []

    def step() -> None:
        ran.append(kernel.now)
        kernel.after(0.5, step)

    kernel.after(0.5, step)
    kernel.run(2.0)
    assert ran == [0.5, 1.0, 1.5, 2.0]


def test_a_cancelled_event_never_runs_and_does_not_count():
    kernel, ran = Kernel(), []
    first = kernel.at(1.0, lambda: second.cancel())
    second = kernel.at(1.0, lambda: ran.append("second"))
    third = kernel.at(2.0, lambda: ran.append("third"))
    third.cancel()
    kernel.at(3.0, lambda: ran.append("fourth"))
    kernel.run(10.0)
    assert ran == ["fourth"]
    assert kernel.events == 2
    first.cancel()  # after it ran: harmless


def test_the_next_event_is_one_that_was_not_cancelled():
    kernel = Kernel()
    assert kernel.next_at() is None
    early, _ = kernel.at(1.0, lambda: None), kernel.at(2.0, lambda: None)
    assert kernel.next_at() == 1.0
    early.cancel()
    assert kernel.next_at() == 2.0


def test_stop_is_asked_after_every_event_and_holds_the_time():
    kernel, ran = Kernel(), []
    for time_s in (1.0, 2.0, 3.0):
        kernel.at(time_s, lambda: ran.append(kernel.now))
    kernel.run(10.0, stop=lambda: len(ran) == 2)
    assert ran == [1.0, 2.0]
    assert kernel.now == 2.0


def test_without_an_end_time_stays_at_the_last_event():
    kernel = Kernel()
    kernel.at(4.0, lambda: None)
    kernel.run(float("inf"))
    assert kernel.now == 4.0


def test_a_world_that_never_ends_is_stopped(monkeypatch):
    monkeypatch.setattr(kernel_module, "SIM_EVENTS_MAX", 100)
    kernel = Kernel()

    def again() -> None:
        kernel.after(0.0, again)

    again()
    with pytest.raises(SimulationError, match="100 events in one world"):
        kernel.run(1.0)
    assert kernel.events == 101
