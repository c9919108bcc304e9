"""Composition: layers from a list, checked, linked, started, stopped; bottom first, as a stack is read.

A stack is refused before it runs when a layer's requirement is provided by no layer below it, when two layers provide
the same thing, when two headers share a tag, or when the bottom is not a transport. It prints itself top to bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Any

import msgspec

from .._speed.quick import Runner, way
from ..core.errors import BadStack
from ..core.frame import Frame, Header
from ..core.ports import Clock, Ports, Timer
from ..wire.codec import MAJOR, Codec
from .events import Event
from .layer import Layer, Node
from .waking import Waking


class Stack(Runner):
    """The linked layers of one member. ``run`` is the only door for stimuli."""

    def __init__(self, layers: Sequence[Layer], ports: Ports, node: Node) -> None:
        check(layers)
        self.layers = list(layers)
        self.node = node
        self._running = False
        self._inside = False
        self._waiting = []
        for layer in layers:
            ports = layer.wrap_ports(ports)
        self._timers = _OwnTimers(ports.clock)
        self.ports = msgspec.structs.replace(ports, clock=self._timers)
        node.fingerprint = fingerprint(layers)
        node.codec = Codec(node.bus, header_types(layers))
        node.waking = Waking(self.ports.clock.elapsed)
        self._settling = [layer for layer in reversed(self.layers) if overrides(layer, "settle")]
        self._link()

    def start(self) -> None:
        self._running = True
        for layer in self.layers:
            self.run(layer.start)

    def stop(self) -> None:
        """Layers say goodbye from the top, then every timer of the stack is cancelled."""
        if not self._running:
            return
        for layer in reversed(self.layers):
            self.run(layer.stop)
        self.abandon()

    def abandon(self) -> None:
        """Stop without a word, as a crash does."""
        self._running = False
        self._timers.cancel_all()

    def settle(self) -> None:
        self.run(_nothing)

    def stats(self) -> dict[str, dict[str, Any]]:
        return {layer.name: layer.stats() for layer in self.layers}

    def validate(self) -> None:
        for layer in self.layers:
            layer.validate()

    def find(self, kind: type[Layer]) -> Layer | None:
        return next((layer for layer in self.layers if isinstance(layer, kind)), None)

    def _link(self) -> None:
        for at, layer in enumerate(self.layers):
            above, below = self.layers[at + 1 :], self.layers[:at][::-1]
            layer.ports = self.ports
            layer.node = self.node
            layer.stimulus = self.run
            layer.pass_up = _up_through(above)
            layer.tell_up = _telling(above, "event_up")
            layer.pass_down = _down_through(below)
            layer.tell_down = _telling(below, "event_down")

    def __str__(self) -> str:
        rows = [(str(layer), (layer.__doc__ or "").strip().split("\n")[0]) for layer in reversed(self.layers)]
        width = max(len(shown) for shown, _ in rows)
        return "\n".join(f"{shown:<{width}}  {what}" for shown, what in rows)


def check(layers: Sequence[Layer]) -> None:
    """Raise ``BadStack`` with one sentence if these layers do not fit."""
    if not layers or "datagrams" not in layers[0].provides:
        raise BadStack("a stack starts with transport: put it first in the list")
    provided: dict[str, str] = {}
    for layer in layers:
        missing = sorted(layer.requires - provided.keys())
        if missing:
            raise BadStack(
                f"{layer.name} needs {' and '.join(missing)} from a layer below it: add one that provides it"
            )
        for what in sorted(layer.provides):
            if what in provided:
                raise BadStack(f"{provided[what]} and {layer.name} both provide {what}: keep one of them")
            provided[what] = layer.name


def header_types(layers: Sequence[Layer]) -> list[type[Header]]:
    return [header for layer in layers for header in layer.headers]


def fingerprint(layers: Sequence[Layer]) -> str:
    """Members talk only if their fingerprints are equal: of the wire, and of the names and options of the layers that
    put headers on frames."""
    shape = "|".join(layer.shape for layer in layers if layer.headers)
    return blake2b(f"{MAJOR}|{shape}".encode(), digest_size=8).hexdigest()


def overrides(layer: Layer, method: str) -> bool:
    return getattr(type(layer), method) is not getattr(Layer, method) or method in vars(layer)


def _first(layers: Sequence[Layer], method: str, otherwise: Callable[..., None]) -> Callable[..., None]:
    for layer in layers:
        if overrides(layer, method):
            bound: Callable[..., None] = getattr(layer, method)
            return bound
    return otherwise


def _up_through(above: Sequence[Layer]) -> Callable[[Frame], None]:
    """The way of frames up through these layers. A selective layer is passed by unless the frame is for it."""
    asked = [layer for layer in above if overrides(layer, "up")]
    selective = list(takewhile(lambda layer: layer.selective, asked))
    after: Callable[[Frame], None] = asked[len(selective)].up if len(asked) > len(selective) else _lost_frame
    own = {header: layer.up for layer in reversed(selective) for header in layer.headers}
    concerned = [(groups, layer.up) for layer in selective if (groups := layer.concerns()) is not None]
    if len(selective) < 2:
        return _first(above, "up", _lost_frame)
    return way(own, concerned, after)


def _down_through(below: Sequence[Layer]) -> Callable[[Frame], None]:
    """The way of frames down through these layers. A layer that changes frames of some groups is passed by with
    others."""
    asked = [layer for layer in below if overrides(layer, "down")]
    ways: list[tuple[Container[int], Callable[[Frame], None]]] = []
    for layer in asked:
        groups = layer.marks()
        if groups is None:
            break
        ways.append((groups, layer.down))
    if len(ways) < 2:
        return _first(below, "down", _lost_frame)
    after: Callable[[Frame], None] = asked[len(ways)].down if len(asked) > len(ways) else _lost_frame
    return way({}, ways, after)


def _telling(layers: Sequence[Layer], method: str) -> Callable[[Event], None]:
    """The way of events through these layers. A layer that is deaf to a kind of event is passed by."""
    first = _first(layers, method, _lost_event)
    asked = [layer for layer in layers if overrides(layer, method)]
    direct: dict[type[Event], Callable[[Event], None]] = {}
    for kind in {kind for layer in asked for kind in layer.deaf_to}:
        direct[kind] = _first([layer for layer in asked if kind not in layer.deaf_to], method, _lost_event)
    if all(way == first for way in direct.values()):
        return first
    find = direct.get

    def tell(event: Event) -> None:
        (find(type(event)) or first)(event)

    return tell


def _lost_frame(frame: Frame) -> None:
    """Beyond the last layer: a frame that nobody wanted."""


def _lost_event(event: Event) -> None:
    """Beyond the last layer: an event that nobody wanted."""


def _nothing() -> None:
    """The empty stimulus: only settles."""


class _OwnTimers:
    """The stack's clock; remembers pending timers so that none outlives its stack."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[int, Timer] = {}
        self._next = 0
        self.now = clock.now
        self.elapsed = clock.elapsed
        self.call_soon = clock.call_soon

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        self._next += 1
        key = self._next

        def fire() -> None:
            self._pending.pop(key, None)
            callback()

        timer = _OwnTimer(self._pending, key, self._clock.call_later(delay_s, fire))
        self._pending[key] = timer
        return timer

    def cancel_all(self) -> None:
        for timer in list(self._pending.values()):
            timer.cancel()


class _OwnTimer:
    __slots__ = ("_key", "_pending", "_timer")

    def __init__(self, pending: dict[int, Timer], key: int, timer: Timer) -> None:
        self._pending = pending
        self._key = key
        self._timer = timer

    def cancel(self) -> None:
        self._pending.pop(self._key, None)
        self._timer.cancel()
