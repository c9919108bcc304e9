"""A member that looks at the clock regularly finds out that it was held up."""

from pluribus.stack.waking import Waking


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nobody_is_late_before_somebody_watches():
    clock = Hand()
    waking = Waking(clock)
    clock.now += 1_000
    assert waking.look() == 0


def test_a_long_time_between_two_looks_counts_once_whoever_looks():
    clock = Hand()
    waking = Waking(clock)
    waking.watch(0.5)
    clock.now += 0.5
    assert waking.look() == 0, "in time"
    clock.now += 0.51
    assert waking.look() == 1
    assert waking.look() == waking.times == 1, "who looks next learns of it, and it is not counted again"
    clock.now += 60
    assert waking.look() == 2
