"""AMRoute: members have one core, a mesh of tunnels and a tree inside it; others only carry."""

import pytest

from pluribus.sim.radio.amroute import CORE_SILENT_S, TREE_S, AmRoute, JoinNak, TreeCreateNak
from pluribus.sim.radio.unicast import Routed

from .graph import Graph, all_near, line


def settled(count: int, edges, members, seed: int = 0) -> Graph:
    graph = Graph(AmRoute, count, edges, members, seed=seed)
    graph.run(25.0)
    return graph


def tree_of(graph: Graph, members) -> set[tuple[int, int]]:
    """Links that both ends count to the tree."""
    nodes = graph.nodes
    return {(one, other) for one in members for other in nodes[one].tree if one < other and one in nodes[other].tree}


def connected(links: set[tuple[int, int]], members) -> bool:
    found, edge = {members[0]}, [members[0]]
    while edge:
        here = edge.pop()
        for one, other in links:
            for near in ({one, other} - {here}) if here in (one, other) else ():
                if near not in found:
                    found.add(near)
                    edge.append(near)
    return found == set(members)


@pytest.mark.parametrize("seed", range(4))
def test_there_is_one_logical_core_and_a_tree_over_the_mesh(seed: int):
    members = (1, 3, 4, 8)
    graph = settled(9, line(9), members, seed)
    assert {graph.nodes[member].core for member in members} == {1}, "of cores that met, the least number is left"
    assert [graph.nodes[member].is_core for member in members] == [True, False, False, False]
    for node in graph.nodes:
        node.validate()
        assert node.me in members or not node.mesh, "who is no member takes no part"
    for member in members:
        assert graph.nodes[member].mesh <= set(members)
    tree = tree_of(graph, members)
    assert len(tree) == len(members) - 1 and connected(tree, members)


def test_every_member_begins_as_a_core():
    graph = Graph(AmRoute, 4, [], members=(0, 2, 3))
    assert [node.is_core for node in graph.nodes] == [True, False, True, True]


def test_a_message_goes_through_tunnels_to_every_member_once():
    members = (0, 4, 8)
    graph = settled(9, line(9), members)
    data = graph.send(4)
    graph.run(2.0)
    assert graph.got(data) == {0: 1, 8: 1}
    hops = [word for word in graph.air.sent(Routed) if word.word == data]
    assert len(hops) == 8, "two tunnels of four hops, each hop a transmission"
    assert graph.air.counted.data_transmissions == 8


def test_a_second_tree_create_is_refused():
    members = (0, 1, 2, 3)
    graph = settled(4, all_near(4), members)
    for member in members:
        graph.nodes[member].mesh = set(members) - {member}  # with circles
    graph.run(2 * TREE_S)
    naks = [word for word in graph.air.sent(Routed) if isinstance(word.word, TreeCreateNak)]
    assert naks and sum(graph.nodes[member].naks for member in members) >= 1
    assert len(tree_of(graph, members)) == 3


def test_a_nak_takes_a_link_out_of_the_tree_and_leaves_it_in_the_mesh():
    graph = settled(3, line(3), (0, 1, 2))
    core = graph.nodes[0]
    (link,) = core.tree
    core._arrived(link, TreeCreateNak(0, core._creates - 1))
    assert core.tree == {link}, "that was of an earlier tree"
    core._arrived(link, TreeCreateNak(0, core._creates))
    assert not core.tree and core.mesh == {link}


def test_when_the_core_is_gone_another_becomes_one_and_they_merge_when_it_returns():
    members = (0, 2, 4)
    graph = settled(5, line(5), members)
    graph.places.draw(line(5)[1:])  # 0 is alone
    graph.run(CORE_SILENT_S + 6 * TREE_S)
    assert graph.nodes[0].is_core and {graph.nodes[2].core, graph.nodes[4].core} == {2}
    data = graph.send(2)
    graph.run(2.0)
    assert graph.got(data) == {4: 1}
    graph.places.draw(line(5))
    graph.run(40.0)
    assert {graph.nodes[member].core for member in members} == {0}
    data = graph.send(4, 1)
    graph.run(2.0)
    assert graph.got(data) == {0: 1, 2: 1}


def test_who_leaves_says_so_and_forwards_no_more():
    members = (0, 1, 2)
    graph = settled(3, line(3), members)
    graph.nodes[2].leave()
    graph.run(1.0)
    assert any(isinstance(word.word, JoinNak) for word in graph.air.sent(Routed, 2))
    assert all(2 not in graph.nodes[member].mesh for member in (0, 1))
    data = graph.send(0)
    graph.run(2.0)
    assert graph.got(data) == {1: 1}
    graph.nodes[2].validate()


def test_without_the_routing_there_is_nothing():
    """The survey: if the unicast protocol fails, so does this one."""
    members = (0, 4)
    graph = settled(5, line(5), members)
    graph.nodes[2].unicast.receive = lambda sender, word: None
    data = graph.send(0)
    graph.run(5.0)
    assert not graph.got(data)
