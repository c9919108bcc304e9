"""Unicast routing on demand: ways are found, used, lost and found again; everything is paid for on the air."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.sim.radio.air import Word
from pluribus.sim.radio.node import Data, RadioNode
from pluribus.sim.radio.places import reached
from pluribus.sim.radio.unicast import WAITING_MAX, Routed, RouteReply, RouteRequest, Unicast

from .graph import Graph, line


class Post(RadioNode):
    """A node that has nothing but the routing."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.got: list[tuple[int, Word]] = []
        self.gone: list[int] = []
        self.unicast = Unicast(
            self.me, self.air, self.random, lambda origin, word: self.got.append((origin, word)), self.gone.append
        )

    def receive(self, sender: int, word: Word) -> None:
        self.unicast.receive(sender, word)


def letter(number: int = 0) -> Data:
    return Data(0, number, 50)


def test_a_way_is_found_and_used_again():
    graph = Graph(Post, 5, line(5))
    graph.nodes[0].unicast.send(4, letter())
    graph.run(2.0)
    assert graph.nodes[4].got == [(0, letter())]
    asked = len(graph.air.sent(RouteRequest))
    assert asked >= 4 and len(graph.air.sent(RouteReply)) >= 4 and len(graph.air.sent(Routed)) == 4
    graph.nodes[0].unicast.send(4, letter(1))
    graph.run(1.0)
    assert graph.nodes[4].got[-1] == (0, letter(1)) and len(graph.air.sent(RouteRequest)) == asked
    assert len(graph.air.sent(Routed)) == 8 and graph.air.counted.data_transmissions == 8
    assert {node.me: node.unicast.ways[4].next for node in graph.nodes[:4]} == {0: 1, 1: 2, 2: 3, 3: 4}


def test_a_broken_way_is_replaced():
    square = [(0, 1), (1, 3), (0, 2), (2, 3)]
    graph = Graph(Post, 4, [(0, 1), (1, 3)])
    graph.nodes[0].unicast.send(3, letter())
    graph.run(1.0)
    graph.places.draw([edge for edge in square if edge != (0, 1)])  # the first hop breaks, another way opens
    graph.nodes[0].unicast.send(3, letter(1))
    graph.run(3.0)
    assert [word.number for _, word in graph.nodes[3].got] == [0, 1]
    assert graph.nodes[0].unicast.ways[3].next == 2


def test_who_cannot_be_reached_is_told_of():
    graph = Graph(Post, 3, [(0, 1)])
    for number in range(WAITING_MAX + 5):
        graph.nodes[0].unicast.send(2, letter(number))
    assert len(graph.nodes[0].unicast._waiting[2]) == WAITING_MAX
    graph.run(10.0)
    assert graph.nodes[0].gone == [2] and not graph.nodes[2].got and not graph.nodes[0].unicast._waiting


def test_a_break_beyond_the_first_hop_is_reported_to_the_origin():
    graph = Graph(Post, 4, line(4))
    graph.nodes[0].unicast.send(3, letter())
    graph.run(1.0)
    graph.places.draw([(0, 1), (1, 2)])
    graph.nodes[0].unicast.send(3, letter(1))
    graph.run(2.0)
    assert 3 not in graph.nodes[0].unicast.ways, "a route error came"
    graph.places.draw(line(4))
    graph.nodes[0].unicast.send(3, letter(2))
    graph.run(3.0)
    assert [word.number for _, word in graph.nodes[3].got] == [0, 2]


def test_a_way_that_was_lost_is_not_taken_again_from_who_still_believes_in_it():
    graph = Graph(Post, 4, line(4))
    graph.nodes[0].unicast.send(3, letter())
    graph.run(1.0)
    routing = graph.nodes[1].unicast
    number = routing.ways[3].number
    routing._broken(2)
    assert 3 not in routing.ways
    routing.receive(0, RouteReply(1, 3, number, 2))  # 0 knows the way over this very node
    assert 3 not in routing.ways
    routing.receive(2, RouteReply(1, 3, number + 1, 0))
    assert routing.ways[3].next == 2


def circle(graph: Graph, to: int) -> bool:
    """Whether ways to a node lead round."""
    for start in graph.nodes:
        seen, node = set(), start
        while node.me != to:
            if node.me in seen:
                return True
            seen.add(node.me)
            way = node.unicast._way(to)
            if way is None:
                break
            node = graph.nodes[way.next]
    return False


edges_of_seven = st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda edge: edge[0] != edge[1]))


@settings(max_examples=40, deadline=None)
@given(drawings=st.lists(edges_of_seven, min_size=1, max_size=4), seed=st.integers(0, 99))
def test_ways_never_lead_round_and_words_come_only_along_paths(drawings, seed):
    graph = Graph(Post, 7, [], seed=seed)
    number = 0
    for edges in drawings:
        graph.places.draw(edges)
        for origin, to in ((0, 6), (3, 6), (6, 0)):
            number += 1
            graph.nodes[origin].unicast.send(to, Data(origin, number, 10))
            graph.run(0.7)
            for node in graph.nodes:
                node.unicast.validate()
            assert not circle(graph, 6) and not circle(graph, 0)
    graph.run(10.0)
    for node in graph.nodes:
        assert len(node.got) == len(set(node.got)), "once each"
    if len(drawings) == 1:
        assert bool(graph.nodes[6].got) <= bool({0, 3} & reached(graph.places, 6, 0.0))
