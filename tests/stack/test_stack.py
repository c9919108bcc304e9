"""Composition: what does not fit is refused in one sentence; what fits is linked, settled and stopped in order."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pluribus.core.errors import BadStack
from pluribus.core.frame import Frame, Header
from pluribus.core.ports import Ports
from pluribus.group.dispatch import Dispatch
from pluribus.layers import CATALOGUE
from pluribus.layers.presence import Presence
from pluribus.layers.transport import Transport
from pluribus.layers.window import Sent, Window
from pluribus.stack.events import Event, JoinGroup, LeaveGroup
from pluribus.stack.layer import Layer, Node
from pluribus.stack.specification import build
from pluribus.stack.stack import Stack, fingerprint
from tests.harness import BEST_EFFORT, FakeEngine, Medium, Member


class Bottom(Layer):
    name = "bottom"
    provides = frozenset({"datagrams"})

    def __init__(self) -> None:
        self.story: list[str] = []

    def down(self, frame: Frame) -> None:
        self.story.append(f"down {frame.first}")

    def event_down(self, event: Event) -> None:
        self.story.append(type(event).__name__)


class Watcher(Layer):
    """Overrides nothing that frames or events pass, so it must cost them nothing."""

    name = "watcher"

    def start(self) -> None:
        self.started = True


class Teller(Layer):
    """tells the common story when it is started, settled and stopped"""

    def __init__(self, name: str, story: list[str]) -> None:
        self.name = name  # type: ignore[misc]
        self.story = story
        self.on_settle: Callable[[], None] = lambda: None

    def start(self) -> None:
        self.story.append(f"{self.name} starts")

    def settle(self) -> None:
        self.story.append(f"{self.name} settles")
        self.on_settle()

    def stop(self) -> None:
        self.story.append(f"{self.name} stops")


def stack_of(*layers: Layer, medium: Medium | None = None) -> Stack:
    medium = medium or Medium()
    ports = Ports(clock=medium.clock, random=Random(1), engine=FakeEngine(medium, ("a", 0)))
    return Stack(layers, ports, Node(1, "a", "demo"))


# --- what fits ------------------------------------------------------------------------------------------------------


class Twin(Layer):
    name = "twin"
    requires = frozenset({"datagrams"})
    provides = frozenset({"members"})


class SameTag(Header, tag=10):
    pass


class Clash(Layer):
    name = "clash"
    headers = (SameTag,)


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ([], "a stack starts with transport: put it first in the list"),
        ([Presence], "a stack starts with transport: put it first in the list"),
        ([Transport, Window], "window needs members from a layer below it: add one that provides it"),
        ([Transport, Window, Presence], "window needs members from a layer below it: add one that provides it"),
        ([Transport, Presence, Twin], "presence and twin both provide members: keep one of them"),
        ([Transport, Transport], "transport and transport both provide datagrams: keep one of them"),
        ([Transport, Presence, Window, Clash], "the headers Sent and SameTag share tag 10: change one of them"),
    ],
)
def test_layers_that_do_not_fit_are_refused_in_one_sentence(layers: list[type[Layer]], sentence: str):
    with pytest.raises(BadStack) as caught:
        stack_of(*(layer() for layer in layers))
    assert str(caught.value) == sentence


def test_a_stack_prints_itself_from_top_to_bottom():
    assert str(stack_of(*build("transport | drop(p=0.25) | presence | window", CATALOGUE))).splitlines() == [
        "window        flow control: credit by stream and receiver",
        "presence      members by hello and silence, not agreed",
        "drop(p=0.25)  loses a share of the frames",
        "transport     datagrams to and from the engine",
    ]


def test_the_fingerprint_tells_stacks_apart_that_cannot_talk():
    catalogue = {**CATALOGUE, Dispatch.name: Dispatch, "clash": Clash}

    def of(specification: str) -> str:
        return fingerprint(build(specification, catalogue))

    best_effort = of(BEST_EFFORT)
    assert best_effort == of(BEST_EFFORT)
    assert best_effort != of("transport | presence | groups")
    assert best_effort != of("transport | presence | clash | groups")
    # Layers that put nothing on frames are each member's own affair.
    assert best_effort == of("transport | drop(p=0.5) | presence | window | trace | groups")


def test_the_codec_of_a_stack_knows_the_headers_of_its_layers():
    stack = stack_of(Transport(), Presence(), Window())
    data = stack.node.codec.encode(Frame(sender=5, headers=[Sent(1, 1)]))
    assert stack.node.codec.decode(data).headers == [Sent(1, 1)]


def test_layers_are_found_by_their_class():
    stack = stack_of(Transport(), Presence())
    assert isinstance(stack.find(Presence), Presence)
    assert stack.find(Window) is None


# --- links ----------------------------------------------------------------------------------------------------------


def test_a_layer_that_only_watches_is_passed_by():
    bottom, watcher = Bottom(), Watcher()
    story: list[str] = []
    top = Teller("top", story)
    stack = stack_of(bottom, watcher, top)
    stack.start()
    assert watcher.started
    assert top.pass_down == bottom.down
    stack.run(lambda: top.pass_down(Frame(sender=1, first=3)))
    stack.run(lambda: top.tell_down(LeaveGroup(3)))
    assert bottom.story == ["down 3", "LeaveGroup"]


def test_what_nobody_above_wants_is_dropped_in_peace():
    bottom = Bottom()
    stack = stack_of(bottom)
    stack.start()
    stack.run(lambda: bottom.pass_up(Frame(sender=1)))
    stack.run(lambda: bottom.tell_up(LeaveGroup(1)))
    assert bottom.story == []


# --- stimuli --------------------------------------------------------------------------------------------------------


def test_layers_start_from_the_bottom_settle_from_the_top_and_stop_from_the_top():
    story: list[str] = []
    stack = stack_of(Bottom(), Teller("low", story), Teller("high", story))
    stack.start()
    settled = ["high settles", "low settles"]
    assert story == [*settled, "low starts", *settled, "high starts", *settled]
    del story[:]
    stack.run(lambda: story.append("stimulus"))
    assert story == ["stimulus", *settled]
    del story[:]
    stack.stop()
    assert story == ["high stops", *settled, "low stops", *settled, *settled]


def test_a_stimulus_from_within_another_is_handled_after_it_and_settled_once():
    story: list[str] = []
    stack = stack_of(Bottom(), Teller("only", story))
    stack.start()
    del story[:]

    def outer() -> None:
        stack.run(lambda: story.append("inner"))
        story.append("outer ends")

    stack.run(outer)
    assert story == ["outer ends", "inner", "only settles"]


def test_a_stimulus_from_settling_is_settled_too():
    story: list[str] = []
    teller = Teller("only", story)
    stack = stack_of(Bottom(), teller)
    stack.start()
    del story[:]

    def once() -> None:
        teller.on_settle = lambda: None
        stack.run(lambda: story.append("late"))

    teller.on_settle = once
    stack.run(lambda: story.append("stimulus"))
    assert story == ["stimulus", "only settles", "late", "only settles"]


def test_a_stimulus_that_fails_leaves_a_stack_that_works():
    story: list[str] = []
    stack = stack_of(Bottom(), Teller("only", story))
    stack.start()
    with pytest.raises(ZeroDivisionError):
        stack.run(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    del story[:]
    stack.run(lambda: story.append("next"))
    assert story == ["next", "only settles"]


def test_nothing_happens_before_the_start_and_after_the_stop():
    story: list[str] = []
    stack = stack_of(Bottom(), Teller("only", story))
    stack.run(lambda: story.append("too early"))
    assert story == []
    stack.start()
    stack.stop()
    del story[:]
    stack.run(lambda: story.append("too late"))
    stack.stop()
    assert story == []


# --- timers ---------------------------------------------------------------------------------------------------------


def test_a_timer_is_a_stimulus_of_its_own():
    medium, story = Medium(), []  # type: Medium, list[str]
    teller = Teller("only", story)
    stack = stack_of(Bottom(), teller, medium=medium)
    stack.start()
    del story[:]
    teller.after(1.0, lambda: story.append("fired"))
    medium.clock.advance(0.99)
    assert story == []
    medium.clock.advance(0.01)
    assert story == ["fired", "only settles"]


@pytest.mark.parametrize("end", ["stop", "abandon"])
def test_no_timer_outlives_its_stack(end: str):
    medium, fired = Medium(), []  # type: Medium, list[int]
    bottom = Bottom()
    stack = stack_of(bottom, medium=medium)
    stack.start()
    for number in range(5):
        bottom.after(1.0 + number, lambda number=number: fired.append(number))  # type: ignore[misc]
    bottom.after(0.5, lambda: None).cancel()
    medium.clock.advance(2.5)
    assert fired == [0, 1]
    assert medium.clock.pending == 3
    getattr(stack, end)()
    assert medium.clock.pending == 0
    medium.clock.advance(100.0)
    assert fired == [0, 1]


def test_a_whole_stack_leaves_no_timer_behind():
    medium = Medium()
    member = Member(medium, "a").start()
    medium.run(10.0)
    assert medium.clock.pending > 0
    member.stack.stop()
    assert medium.clock.pending == 0


def test_statistics_and_invariants_are_those_of_all_layers():
    checked: list[str] = []

    class Checked(Teller):
        def validate(self) -> None:
            checked.append(self.name)

        def stats(self) -> dict[str, Any]:
            return {"seen": 1}

    stack = stack_of(Bottom(), Checked("low", []), Checked("high", []))
    stack.validate()
    assert checked == ["low", "high"]
    assert stack.stats() == {"bottom": {}, "low": {"seen": 1}, "high": {"seen": 1}}


def test_a_selective_layer_is_asked_only_for_its_own_headers():
    asked: list[str] = []

    class Picky(Layer):
        selective = True

        def up(self, frame: Frame) -> None:
            asked.append(self.name)
            self.pass_up(frame)

    class One(Picky):
        name = "one"
        headers = (Sent,)

    class Other(Picky):
        name = "other"

    class Top(Layer):
        name = "top"

        def up(self, frame: Frame) -> None:
            asked.append("top")

    bottom = Bottom()
    stack_of(bottom, One(), Other(), Top())
    bottom.pass_up(Frame(sender=1, headers=[Sent(0, 0)]))
    assert asked == ["one", "other", "top"], "what it passes on goes to the next"
    asked.clear()
    bottom.pass_up(Frame(sender=1, headers=[]))
    assert asked == ["top"]


def test_a_layer_is_not_asked_about_events_that_it_is_deaf_to():
    asked: list[str] = []

    class Busy(Layer):
        def event_down(self, event: Event) -> None:
            asked.append(self.name)
            self.tell_down(event)

    class Deaf(Busy):
        name = "deaf"
        deaf_to = frozenset({LeaveGroup})

    class Hearing(Busy):
        name = "hearing"

    bottom, top = Bottom(), Watcher()
    stack_of(bottom, Deaf(), Hearing(), Deaf(), top)
    top.tell_down(LeaveGroup(7))
    assert asked == ["hearing"] and bottom.story == ["LeaveGroup"]
    asked.clear()
    top.tell_down(JoinGroup(7, "seven"))
    assert asked == ["deaf", "hearing", "deaf"] and bottom.story == ["LeaveGroup", "JoinGroup"]
