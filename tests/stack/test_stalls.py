"""Who is reported as stalled, when, and when no more."""

import pytest

from pluribus.core.errors import BadStack
from pluribus.stack.specification import build
from pluribus.stack.stalls import Stalls
from tests.harness import CATALOGUE


def test_a_receiver_is_reported_when_it_was_full_all_the_time_and_again_while_it_lasts():
    stalls = Stalls()
    assert stalls.look(0.0, [1, 2], 5.0) == ([], [])
    assert stalls and not len(stalls)
    assert stalls.look(3.0, [1], 5.0) == ([], []), "2 has room again: its time begins anew"
    assert stalls.look(4.0, [1, 2], 5.0) == ([], [])
    assert stalls.look(5.0, [1, 2], 5.0) == ([1], [])
    assert stalls.look(6.0, [1, 2], 5.0) == ([], [])
    assert stalls.look(10.0, [1, 2], 5.0) == ([1, 2], []), "1 again, 2 for the first time"
    assert len(stalls) == 2
    assert stalls.look(11.0, [2], 5.0) == ([], [1])
    assert stalls.look(12.0, [], 5.0) == ([], [2])
    assert not stalls and not len(stalls)


def test_who_was_never_reported_is_never_reported_as_over():
    stalls = Stalls()
    assert stalls.look(0.0, [1], 5.0) == stalls.look(4.9, [], 5.0) == ([], [])


@pytest.mark.parametrize("layer", ["window", "reliable"])
@pytest.mark.parametrize("stall_s", [0, -1, float("inf"), float("nan")])
def test_a_time_that_cannot_be_is_refused(layer: str, stall_s: float):
    with pytest.raises(BadStack, match=rf"{layer}\(stall_s=.* cannot be"):
        CATALOGUE[layer](stall_s=stall_s)
    assert build(f"{layer}(stall_s=0.5)", CATALOGUE)
