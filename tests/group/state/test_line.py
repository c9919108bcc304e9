"""Which messages a reader has passed, against a set of them."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.frame import Frame, Parents
from pluribus.group.state.line import HeldFrame, Seens
from pluribus.wire.bodies import BYTES, decode_bodies, join_bodies

runs = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60), st.integers(1, 6)), max_size=150)


def frame(sender: int, first: int, count: int) -> Frame:
    bodies = [b"%d" % number for number in range(first, first + count)]
    return Frame(sender=sender, first=first, count=count, size=count, kind=BYTES, bodies=join_bodies(BYTES, bodies))


@given(runs, st.tuples(st.integers(1, 3), st.integers(0, 60), st.integers(1, 20)), st.booleans())
def test_what_was_not_passed_is_left(passed, held, encoded):
    seens, oracle = Seens(), set()
    for sender, first, count in passed:
        seens.add(frame(sender, first, count))
        oracle |= {(sender, number) for number in range(first, first + count)}
    sender, first, count = held
    kept = frame(*held)
    if encoded:  # as it comes from another process
        kept.bodies = msgspec.Raw(msgspec.msgpack.encode(kept.bodies))
    kept.headers = [Parents([(9, number) for number in range(first, first + count)])]
    left = Seens(seens.list()).unseen(HeldFrame.of(kept, paid=True))
    found = []
    for run in left:
        bodies = decode_bodies(run.kind, run.bodies, run.count)
        assert bodies == [b"%d" % number for number in range(run.first, run.first + run.count)]
        assert run.headers[0].of == [(9, number) for number in range(run.first, run.first + run.count)]
        found += range(run.first, run.first + run.count)
    assert found == [number for number in range(first, first + count) if (sender, number) not in oracle]
