"""The detector of a member that was held up: its own lateness is nobody's silence, and hides nobody's either."""

from pluribus.core.frame import Frame
from pluribus.layers.detector import BEAT_S, OPINION_S, SILENCE_S, Beat, Detector, Ping, Pong
from pluribus.stack.events import Suspected
from tests.layers.alone import Alone

ME, OTHER = 1, 2


def started() -> Alone:
    alone = Alone(Detector(), ME)
    alone.layer.start()
    beats(alone)
    return alone


def beats(alone: Alone) -> None:
    beat = Beat("other", ("m2", 0), alone.layer.node.fingerprint, b"", False)
    alone.layer.up(Frame(sender=OTHER, headers=[beat]))


def suspected(alone: Alone) -> bool:
    return any(isinstance(event, Suspected) for event in alone.told_up)


def fire_late(alone: Alone) -> None:
    """The timers that were due while this member stood still, each once."""
    clock = alone.medium.clock
    due = sorted(entry for entry in clock._heap if entry[0] <= clock.now())
    clock._heap = [entry for entry in clock._heap if entry[0] > clock.now()]
    for _, _, timer in due:
        if timer.callback is not None:
            timer.callback()


def asked(alone: Alone) -> bool:
    return any(frame.to == OTHER and isinstance(frame.headers[-1], Ping) for frame in alone.down)


def test_who_fell_silent_while_this_member_stood_still_is_missed_soon():
    alone = started()
    alone.wait(2 * BEAT_S)
    beats(alone)
    alone.medium.clock._now += 60.0
    beats(alone)  # it waited in the socket, and is read before any timer is looked at
    fire_late(alone)
    assert not suspected(alone)
    alone.wait(SILENCE_S + OPINION_S + 2 * BEAT_S)
    assert suspected(alone), "and not a minute later"


def test_an_answer_that_waits_unread_is_an_answer():
    for seed in range(20):
        alone = started()
        alone.layer.ports.random.seed(seed)  # so that either timer is the first one
        while not asked(alone):
            alone.wait(0.01)
        alone.medium.clock._now += 60.0
        fire_late(alone)
        assert not suspected(alone), "it had no time to read the answer"
        alone.layer.up(Frame(sender=OTHER, to=ME, headers=[Pong(OTHER, ME)]))
        alone.wait(OPINION_S)
        assert not suspected(alone)


def test_who_does_not_answer_after_a_pause_is_suspected():
    alone = started()
    while not asked(alone):
        alone.wait(0.01)
    alone.medium.clock._now += 60.0
    fire_late(alone)
    alone.wait(SILENCE_S + OPINION_S + 2 * BEAT_S)
    assert suspected(alone)
