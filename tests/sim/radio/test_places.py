"""Where nodes are: inside the square, at their speed, and who is in range is symmetric and right."""

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.sim.radio.places import STEP_S, Drawn, Waypoints, reached


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 1_000), speed=st.floats(0, 30), count=st.integers(1, 12))
def test_nodes_stay_inside_and_go_no_faster_than_they_may(seed: int, speed: float, count: int):
    places = Waypoints(count, Random(seed), speed_m_s=speed, side_m=300.0)
    before = places.at(0.0)
    for step in range(1, 120):
        after = places.at(step * 1.0)
        assert ((after >= -1e-6) & (after <= 300 + 1e-6)).all()
        assert (np.hypot(*(after - before).T) <= speed + 1e-6).all()
        before = after


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1_000), speed=st.sampled_from([0.0, 5.0, 20.0]), now=st.floats(0, 60))
def test_who_is_near_is_a_matter_of_distance(seed: int, speed: float, now: float):
    places = Waypoints(15, Random(seed), speed_m_s=speed)
    near = [places.near(node, now) for node in range(15)]
    where = Waypoints(15, Random(seed), speed_m_s=speed).at(int(now / STEP_S) * STEP_S)
    for one in range(15):
        for other in range(15):
            apart = float(np.hypot(*(where[one] - where[other])))
            assert (other in near[one]) == (one != other and apart <= places.range_m) == (one in near[other])


def test_with_one_seed_the_paths_are_the_same_at_every_speed():
    slow = Waypoints(10, Random(7), speed_m_s=2.0)
    fast = Waypoints(10, Random(7), speed_m_s=20.0)
    assert np.allclose(slow.at(0.0), Waypoints(10, Random(7)).at(99.0)), "who rests stays where the others begin"
    assert np.allclose(slow.at(100.0), fast.at(10.0)) and np.allclose(slow.at(1_000.0), fast.at(100.0))


def test_nodes_do_not_gather_in_the_middle_as_time_passes():
    """They begin as they go on: otherwise a comparison of speeds would compare densities."""

    def from_the_middle(now: float) -> float:
        places = Waypoints(2_000, Random(1), speed_m_s=20.0)
        return float(np.abs(places.at(now) - 500).mean())

    assert abs(from_the_middle(0.0) - from_the_middle(300.0)) < 8
    assert from_the_middle(0.0) < 225, "at rest places are chosen evenly, and the mean is 250"


def test_reached_is_what_a_path_leads_to():
    places = Drawn(6, [(0, 1), (1, 2), (3, 4)])
    assert reached(places, 0, 0.0) == {0, 1, 2} and reached(places, 4, 0.0) == {3, 4}
    places.draw([(2, 3)])
    assert reached(places, 2, 0.0) == {2, 3} and places.near(0, 0.0) == []
