"""Scoped flooding: who has no neighbour that the sender lacks stays silent."""

from pluribus.sim.radio.neighbours import SILENT_S, Hello
from pluribus.sim.radio.node import Data
from pluribus.sim.radio.scoped import ScopedFlooding

from .graph import Graph, all_near, line


def test_hellos_carry_the_list_of_neighbours():
    graph = Graph(ScopedFlooding, 4, line(4))
    graph.run(5.0)
    assert [sorted(node.neighbours.known) for node in graph.nodes] == [[1], [0, 2], [1, 3], [2]]
    assert graph.nodes[0].neighbours.known[1].near == {0, 2}
    hello = graph.air.sent(Hello, 1)[-1]
    assert hello.near == (0, 2) and hello.control == Hello((), None).control + 2 * 4


def test_in_a_clique_nobody_repeats():
    graph = Graph(ScopedFlooding, 5, all_near(5))
    graph.run(5.0)
    data = graph.send(0)
    graph.run(1.0)
    assert graph.got(data) == {1: 1, 2: 1, 3: 1, 4: 1}
    assert graph.air.sent(Data) == [data] and sum(node.spared for node in graph.nodes) == 4


def test_who_has_somebody_else_repeats():
    graph = Graph(ScopedFlooding, 5, [*all_near(4), (3, 4)])
    graph.run(5.0)
    data = graph.send(0)
    graph.run(1.0)
    assert graph.got(data)[4] == 1
    assert [len(graph.air.sent(Data, node)) for node in range(5)] == [1, 0, 0, 1, 0], "4 has nobody but 3"


def test_an_unknown_sender_is_no_reason_for_silence():
    graph = Graph(ScopedFlooding, 3, line(3))
    data = graph.send(0)  # before any hello
    graph.run(1.0)
    assert graph.got(data) == {1: 1, 2: 1}


def test_who_is_silent_is_forgotten():
    graph = Graph(ScopedFlooding, 3, line(3))
    graph.run(4.0)
    graph.places.draw([(0, 1)])
    graph.run(SILENT_S + 1.5)
    assert sorted(graph.nodes[1].neighbours.known) == [0] and not graph.nodes[2].neighbours.known
