"""A layer: one protocol between two neighbours.

Theory of operation
-------------------
Frames go down to the network and up to the application. A layer overrides ``down`` or ``up`` only if it has something
to do there: ``Stack`` links each layer to the next one that does, so a layer that only watches events costs a frame
nothing.

A *stimulus* is one call from outside: a list of datagrams, a timer, a call of the application. When a stimulus has
been handled, ``settle`` is called on every layer from the top to the bottom, once: there batches are closed,
acknowledgements joined and datagrams handed to the engine. That is the bundling by back-pressure: no timer delays
anything, and whatever came together goes out together.

Layers do no I/O. Time, randomness and bytes come from ``self.ports``; a layer that imports asyncio, socket, time or
random is refused by the house test.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, ClassVar

from ..core.frame import Frame, Header
from ..core.ports import Ports, Timer
from ..wire.codec import Codec
from .events import Event
from .waking import Waking


class Node:
    """What a layer may know of the member it works for."""

    __slots__ = ("bus", "codec", "fingerprint", "me", "name", "waking")

    def __init__(self, me: int, name: str, bus: str) -> None:
        self.me = me
        self.name = name
        self.bus = bus
        self.fingerprint = ""
        self.codec = Codec(bus)  # the stack replaces it with one that knows the headers of its layers
        self.waking = Waking(lambda: 0.0)  # and this with one that has a clock


class Layer:
    """Subclass it, name it, say what it requires of the layers below and what it provides to those above."""

    name: ClassVar[str] = ""
    requires: ClassVar[frozenset[str]] = frozenset()
    provides: ClassVar[frozenset[str]] = frozenset()
    headers: ClassVar[tuple[type[Header], ...]] = ()
    selective: ClassVar[bool] = False
    """True: ``up`` passes on, untouched, frames whose last header is not the layer's and whose group is not in
    ``concerns``. Such frames are led past the layer."""

    deaf_to: ClassVar[frozenset[type[Event]]] = frozenset()
    """Frequent events that the layer passes on untouched in both directions. They are led past the layer."""

    unsettled: bool = True
    ports: Ports
    node: Node
    pass_up: Callable[[Frame], None]
    pass_down: Callable[[Frame], None]
    tell_up: Callable[[Event], None]
    tell_down: Callable[[Event], None]
    stimulus: Callable[..., None]

    def start(self) -> None:
        """The stack is linked and the engine open."""

    def stop(self) -> None:
        """Say goodbye if the protocol has one; timers are cancelled by the stack."""

    def down(self, frame: Frame) -> None:
        self.pass_down(frame)

    def up(self, frame: Frame) -> None:
        self.pass_up(frame)

    def concerns(self) -> Container[int] | None:
        """The groups of which a selective layer wants all frames, a set that changes in place; None: no group."""
        return None

    def marks(self) -> Container[int] | None:
        """The groups whose frames ``down`` changes, a set that changes in place; frames of others are led past the
        layer. None: all groups."""
        return None

    def event_down(self, event: Event) -> None:
        self.tell_down(event)

    def event_up(self, event: Event) -> None:
        self.tell_up(event)

    def settle(self) -> None:
        """The stimulus is over: send what was gathered. A layer with an attribute ``unsettled`` is called only while
        that is true."""

    def stats(self) -> dict[str, Any]:
        return {}

    def validate(self) -> None:
        """Assert every invariant; called by tests and by the simulator."""

    def options(self) -> dict[str, Any]:
        """What distinguishes this layer from another of its class: printed, and part of the stack's fingerprint."""
        return {}

    def settings(self) -> dict[str, Any]:
        """What members of one bus may set differently: printed, and no part of the fingerprint."""
        return {}

    def wrap_ports(self, ports: Ports) -> Ports:
        """A layer that records or disturbs the outside world (trace, faults) returns ports of its own around those of
        the whole stack."""
        return ports

    def after(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call later, as a stimulus of its own."""
        return self.ports.clock.call_later(delay_s, lambda: self.stimulus(callback))

    @property
    def shape(self) -> str:
        """What must be the same at every member of a bus."""
        return self._written(self.options())

    def __str__(self) -> str:
        return self._written(self.options() | self.settings())

    def _written(self, values: dict[str, Any]) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in values.items())
        return f"{self.name}({shown})" if shown else self.name
