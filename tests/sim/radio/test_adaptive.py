"""Adaptive flooding: each node takes the mode that fits the speed of its neighbours."""

import pytest

from pluribus.sim.radio.adaptive import FAST_M_S, SLOW_M_S, AdaptiveFlooding, Mode
from pluribus.sim.radio.node import Data

from .graph import Graph, all_near, line


def moving(speed: float, count: int = 4, edges=None) -> Graph:
    """Node 0 goes that fast, the others rest."""
    graph = Graph(AdaptiveFlooding, count, all_near(count) if edges is None else edges)
    graph.places.velocities[0] = (speed, 0.0)
    graph.run(5.0)
    return graph


@pytest.mark.parametrize(
    ("speed", "mode"), [(0.0, Mode.SCOPED), ((SLOW_M_S + FAST_M_S) / 2, Mode.PLAIN), (FAST_M_S + 1, Mode.HYPER)]
)
def test_the_mode_follows_the_relative_speed(speed: float, mode: Mode):
    assert moving(speed).nodes[0].mode == mode


def test_it_is_the_relative_speed_that_counts():
    graph = Graph(AdaptiveFlooding, 4, all_near(4))
    graph.places.velocities = [(20.0, 0.0)] * 4  # a train
    graph.run(5.0)
    assert {node.mode for node in graph.nodes} == {Mode.SCOPED}


def test_at_rest_a_clique_is_silent_and_in_motion_it_is_not():
    for speed, frames in ((0.0, 1), (20.0, 4)):
        graph = moving(speed)
        data = graph.send(1)
        graph.run(0.5)
        assert graph.got(data) == {0: 1, 2: 1, 3: 1}
        assert len(graph.air.sent(Data)) == frames


def test_who_is_in_hyper_mode_repeats_for_newcomers():
    graph = moving(FAST_M_S * 3, 4, line(3))
    data = graph.send(1)
    graph.run(1.1)
    graph.places.draw([*line(3), (0, 3)])
    graph.run(1.5)
    assert graph.got(data) == {0: 1, 2: 1, 3: 1}
