"""Hyper flooding: newcomers are told what was said before they came, as long as it is kept."""

from pluribus.sim.radio.hyper import AGAIN_S, CACHE_MAX, CACHE_S, HyperFlooding
from pluribus.sim.radio.node import Data

from .graph import Graph, line


def test_a_hello_of_a_new_node_makes_neighbours_repeat_their_cache():
    graph = Graph(HyperFlooding, 4, line(3))
    graph.run(5.0)
    data = graph.send(0)
    graph.run(1.1)
    assert graph.got(data) == {1: 1, 2: 1} and len(graph.air.sent(Data)) == 3
    graph.places.draw([*line(3), (2, 3)])  # 3 comes within range of 2
    graph.run(1.5)
    assert graph.got(data) == {1: 1, 2: 1, 3: 1}, "and nobody is given it twice"
    assert graph.nodes[2].cache.repeated == 1 and len(graph.air.sent(Data, 2)) == 2
    assert len(graph.air.sent(Data, 3)) >= 1, "to the newcomer it is new, and its wave goes on"


def test_a_message_of_an_unknown_node_does_it_too():
    graph = Graph(HyperFlooding, 3, [(0, 1)])
    graph.run(5.0)
    first = graph.send(0, 0)
    graph.run(1.1)
    graph.places.draw([(0, 1), (1, 2)])
    second = graph.send(2, 0)
    graph.run(0.2)
    assert graph.got(first)[2] == 1 and graph.got(second) == {0: 1, 1: 1}


def test_several_newcomers_hear_one_repetition():
    graph = Graph(HyperFlooding, 5, [(0, 1)])
    graph.run(5.0)
    data = graph.send(0)
    graph.run(AGAIN_S + 0.1)
    graph.places.draw([(0, 1), (1, 2), (1, 3), (1, 4)])
    graph.run(AGAIN_S)
    assert set(graph.got(data)) == {1, 2, 3, 4} and graph.nodes[1].cache.repeated <= 2


def test_the_cache_is_purged():
    graph = Graph(HyperFlooding, 3, [(0, 1)])
    graph.run(5.0)
    data = graph.send(0)
    graph.run(CACHE_S + 0.5)
    graph.places.draw([(0, 1), (1, 2)])
    graph.run(2.0)
    assert 2 not in graph.got(data) and len(graph.nodes[1].cache) == 0


def test_the_cache_is_bounded():
    graph = Graph(HyperFlooding, 2, [(0, 1)])
    for number in range(CACHE_MAX + 10):
        graph.send(0, number)
    assert len(graph.nodes[0].cache) == CACHE_MAX
