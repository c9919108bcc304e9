"""Plain flooding: every node repeats a message exactly once, and nobody is given it twice."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.sim.radio import node as nodes
from pluribus.sim.radio.flooding import Flooding
from pluribus.sim.radio.node import Data, Seen
from pluribus.sim.radio.places import reached

from .graph import Graph, line


@settings(max_examples=40, deadline=None)
@given(edges=st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda edge: edge[0] != edge[1])))
def test_every_node_that_has_a_message_sent_it_exactly_once(edges):
    graph = Graph(Flooding, 8, edges)
    data = graph.send(0)
    graph.run(1.0)
    senders = [sender for _, sender, word in graph.air.frames if word == data]
    got = graph.got(data)
    assert sorted(senders) == sorted({0, *got}), "one broadcast a node, by those who have it"
    assert set(got.values()) <= {1} and got.keys() <= reached(graph.places, 0, 0.0) - {0}


def test_a_line_has_no_collisions_to_fear():
    graph = Graph(Flooding, 6, line(6))
    data = graph.send(0)
    graph.run(1.0)
    assert graph.got(data) == dict.fromkeys(range(1, 6), 1)
    assert graph.air.counted.transmissions == 6


def test_those_who_are_no_members_repeat_and_are_given_nothing():
    graph = Graph(Flooding, 3, line(3), members=(0, 2))
    data = graph.send(0)
    graph.run(1.0)
    assert graph.got(data) == {2: 1} and graph.air.sent(Data, 1) == [data]


def test_what_was_seen_is_bounded(monkeypatch):
    monkeypatch.setattr(nodes, "SEEN_MAX", 3)
    seen = Seen()
    assert [seen.first(what) for what in (1, 2, 3, 1, 4, 1)] == [True, True, True, False, True, True]
