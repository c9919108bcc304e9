"""Nodes of one protocol on a graph that a test draws, with everything that they sent and delivered."""

from collections import Counter
from random import Random

from pluribus.sim.radio.air import Air, Outgoing, Word
from pluribus.sim.radio.node import Data, RadioNode
from pluribus.sim.radio.places import Drawn


class Overheard(Air):
    """The air, with a list of all frames in the order in which they were sent."""

    def __init__(self, places: Drawn, random: Random, *, loss: float = 0.0) -> None:
        super().__init__(places, random, loss=loss)
        self.frames: list[tuple[float, int, Word]] = []

    def _begin(self, node: int) -> None:
        self.frames.append((self.now, node, self._queues[node][0].word))
        super()._begin(node)

    def sent(self, kind: type, node: int | None = None) -> list[Word]:
        return [word for _, sender, word in self.frames if isinstance(word, kind) and node in (None, sender)]


class Graph:
    """``nodes[i]`` runs the protocol; edges say who hears whom."""

    def __init__(self, protocol: type, count: int, edges, members=(), *, loss: float = 0.0, seed: int = 0) -> None:
        self.places = Drawn(count, edges)
        self.air = Overheard(self.places, Random(seed), loss=loss)
        chosen = frozenset(members or range(count))
        self.delivered: list[tuple[int, Data]] = []
        self.nodes: list = [
            protocol(node, self.air, chosen, self._deliver, Random(f"{seed} {node}")) for node in range(count)
        ]
        for node in self.nodes:
            node.start()

    def _deliver(self, member: int, data: Data) -> None:
        self.delivered.append((member, data))

    def send(self, source: int, number: int = 0) -> Data:
        data = Data(source, number, 100)
        self.nodes[source].send(data)
        return data

    def got(self, data: Data) -> Counter:
        """How often each member was given that message."""
        return Counter(member for member, found in self.delivered if found == data)

    def run(self, seconds: float) -> None:
        self.air.run(self.air.now + seconds)


def line(count: int) -> list[tuple[int, int]]:
    return [(node, node + 1) for node in range(count - 1)]


def all_near(count: int) -> list[tuple[int, int]]:
    return [(one, other) for one in range(count) for other in range(one)]


class Ear(RadioNode):
    """A node that only listens."""

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.heard: list[tuple[int, Word]] = []

    def send(self, data: Data) -> None:
        self.air.broadcast(self.me, data)

    def receive(self, sender: int, word: Word) -> None:
        self.heard.append((sender, word))


__all__ = ["Ear", "Graph", "Outgoing", "Overheard", "all_near", "line"]
