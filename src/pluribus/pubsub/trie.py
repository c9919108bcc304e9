"""Patterns in a tree of levels: which of them does a topic match?

A look-up walks the levels of the topic and keeps the set of nodes that the patterns allow so far: at each level a node
has at most two ways on, the level's own name and ``+``. So it costs at most as many steps as there are nodes that the
topic reaches, however many patterns there are in all. Concrete topics are looked up once and remembered
(``table.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from .topics import ONE, REST, levels_of

K = TypeVar("K", bound=Hashable)


class _Node(Generic[K]):
    __slots__ = ("here", "ways")

    def __init__(self) -> None:
        self.ways: dict[str, _Node[K]] = {}
        self.here: dict[K, None] = {}
        """Keys of the patterns that end here, in the order in which they came."""


class Trie(Generic[K]):
    """Keys under patterns. A key may be under several patterns; under one pattern it is there once."""

    def __init__(self) -> None:
        self._root: _Node[K] = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: str, key: K) -> None:
        node = self._root
        for level in levels_of(pattern):
            node = node.ways.setdefault(level, _Node())
        self._count += key not in node.here
        node.here[key] = None

    def remove(self, pattern: str, key: K) -> None:
        """What is not there is no error."""
        path: list[tuple[_Node[K], str]] = []
        node = self._root
        for level in levels_of(pattern):
            found = node.ways.get(level)
            if found is None:
                return
            path.append((node, level))
            node = found
        if key not in node.here:
            return
        del node.here[key]
        self._count -= 1
        for parent, level in reversed(path):
            child = parent.ways[level]
            if child.here or child.ways:
                return
            del parent.ways[level]

    def keys(self) -> Iterator[K]:
        """Every key, once for each of its patterns."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            yield from node.here
            nodes += node.ways.values()

    def match(self, topic: str) -> list[K]:
        """The keys of all patterns that the topic matches, each once."""
        found: dict[K, None] = {}
        nodes = [self._root]
        for level in topic.split("/"):
            nodes = list(self._further(nodes, level, found))
            if not nodes:
                return list(found)
        for node in nodes:
            found.update(node.here)
            rest = node.ways.get(REST)
            if rest is not None:
                found.update(rest.here)
        return list(found)

    def _further(self, nodes: list[_Node[K]], level: str, found: dict[K, None]) -> Iterator[_Node[K]]:
        for node in nodes:
            ways = node.ways
            rest = ways.get(REST)
            if rest is not None:
                found.update(rest.here)
            for name in (level, ONE):
                onward = ways.get(name)
                if onward is not None:
                    yield onward

    def validate(self) -> None:
        """Invariants; slow."""
        count, nodes = 0, [self._root]
        while nodes:
            node = nodes.pop()
            count += len(node.here)
            assert node is self._root or node.here or node.ways, "a branch that leads nowhere"
            nodes += node.ways.values()
        assert count == self._count
