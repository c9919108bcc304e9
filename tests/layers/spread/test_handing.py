"""The layer cuts sub-lists as the arithmetic says; and whoever is dead, each who lives is handed the message once."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.frame import Frame
from pluribus.core.tree import FLAT, SHAPE_MAX, balanced, median, reached
from pluribus.layers.spread.handing import Handing
from pluribus.layers.spread.lists import Listed, Lists
from pluribus.layers.spread.streams import Record, Stream, Task


class Cutting(Handing):
    """A member that hands out, and does nothing else."""

    def __init__(self):
        super().__init__(SimpleNamespace(node=SimpleNamespace(me=0)), Lists(lambda: 0.0))

    def _give(self, stream, number, record, task, child):
        pass

    def _answered(self, stream, number, record, task):
        pass


def spread(size: int, root: int, shape: int, dead: frozenset[int]) -> tuple[list[tuple[int, int]], set[int]]:
    """Every sending as (from, to), in the order of ``reached``; and who was skipped."""
    listed = Listed(1, 1, tuple(range(1, size + 1)))
    stream, record = Stream((listed.identity, root, 1), listed, 0.0), Record(Frame(sender=1), 1, 0)
    cutting, sent, skipped = Cutting(), [], set()
    waiting = [(root, ((root + 1) % size, size - 1))]
    while waiting:
        owner, scope = waiting.pop()
        task = Task(0, scope, shape, 0.0)
        cutting._hand_out(stream, 0, record, task, scope, set(dead))
        skipped |= task.skipped
        for child, part in task.waiting.items():
            sent.append((owner, child))
            waiting.append((child, part))
    return sent, skipped


@pytest.mark.parametrize("shape", [FLAT, median(1), median(2), median(5), balanced(1), balanced(2)])
def test_while_nobody_is_dead_the_layer_hands_out_as_the_arithmetic_says(shape: int):
    for size in (1, 2, 3, 7, 16, 31):
        for root in range(size):
            assert spread(size, root, shape, frozenset()) == (list(reached(size, root, shape)), set())


@given(st.data())
def test_whoever_is_dead_each_who_lives_is_handed_it_once(data: st.DataObject):
    size = data.draw(st.integers(1, 60))
    root = data.draw(st.integers(0, size - 1))
    shape = data.draw(st.integers(0, SHAPE_MAX))
    dead = data.draw(st.frozensets(st.integers(0, size - 1))) - {root}
    sent, skipped = spread(size, root, shape, dead)
    targets = [target for _, target in sent]
    assert sorted(targets) == sorted(set(range(size)) - dead - {root}), "each who lives, once"
    assert skipped == dead, "who was not reached is named"
