"""One layer between two hands: what it passes and tells, up and down, is written down."""

from random import Random
from typing import Any

from pluribus.core.frame import Frame
from pluribus.core.ports import Ports
from pluribus.stack.events import Event, Members, ViewChanged
from pluribus.stack.layer import Layer, Node
from tests.harness import FakeEngine, Medium

GROUP = 7


class Alone:
    """``up`` and ``down`` are what the layer passed, ``told_up`` and ``told_down`` what it told."""

    def __init__(self, layer: Any, me: int) -> None:
        self.layer: Any = layer
        self.me = me
        self.medium = Medium()
        self.up: list[Frame] = []
        self.down: list[Frame] = []
        self.told_up: list[Event] = []
        self.told_down: list[Event] = []
        base: Layer = layer
        base.node = Node(me, f"member {me}", "demo")
        engine = FakeEngine(self.medium, (f"m{me}", 0))
        base.ports = Ports(clock=self.medium.clock, random=Random(me), engine=engine)
        base.stimulus = lambda call: call()
        base.pass_up = self.up.append
        base.pass_down = self.down.append
        base.tell_up = self.told_up.append
        base.tell_down = self.told_down.append

    def enter(self, view: int, members: tuple[int, ...], promises: str, group: int = GROUP) -> None:
        """The membership has a new view, in which all are in the group."""
        self.layer.event_up(ViewChanged(view, members[0], members, primary=True))
        self.layer.event_up(Members(group, members, {}, agreed=True, promises=promises))

    def wait(self, seconds: float) -> None:
        self.medium.clock.advance(seconds)
