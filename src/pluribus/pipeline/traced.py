"""Trace files as histories: the messages and views that the members of a traced run sent, saw and delivered, for
checkers.

A trace (``connect(url, trace=FILE)``) has the stimuli of one member, not their effects. So it is run again, and an
observer stands in the place of the application. Groups are known by number alone; members of one machine share its
clock, which puts the histories of several of them into one order.

Left out: messages to one member, and what came through a relay from outside of a group. Nothing is promised of them to
the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from typing import Any

import msgspec

from ..core.frame import Frame, Parents, Relayed, Standing
from ..core.ids import ALL
from ..group.pieces import Pieces, piece_of
from ..runtime.loop.tracing import run_again
from ..sim.machinery.history import Happening
from ..sim.machinery.observer import Watch
from ..stack.events import Event
from ..stack.layer import Layer
from ..stack.trace import Replay, ReplayTop
from ..wire.bodies import Opaque, decode_bodies


def history_of_trace(path: str | PathLike[str]) -> list[Happening]:
    """Everything that one member sent and saw, in its order. ``BadInput`` if it is no trace, or cannot be had again."""
    found: list[Happening] = []
    run_again(path, lambda story, stands_for, me: Witness(story, stands_for, me, found.append))
    return found


class Groups(Mapping[int, str]):
    """Every number of a group has a name."""

    def __getitem__(self, number: int) -> str:
        if not number:
            raise KeyError(number)
        return f"group {number:x}"

    def __iter__(self) -> Iterator[int]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Witness(ReplayTop):
    """Sees what the application saw and did."""

    def __init__(self, story: Replay, stands_for: type[Layer], me: int, add: Callable[[Happening], None]) -> None:
        super().__init__(story, stands_for)
        self._story = story
        self._me = me
        self._add = add
        self._sent = Pieces()
        self._watch = Watch(me, Groups(), lambda: story.time, self._seen)

    def down(self, frame: Frame) -> None:
        self._sends(frame)
        super().down(frame)

    def up(self, frame: Frame) -> None:
        if frame.count and frame.to == ALL:
            self._watch.see(frame.copy())
        super().up(frame)

    def event_up(self, event: Event) -> None:
        self._watch.see(event)
        super().event_up(event)

    def stop(self) -> None:
        self._add(Happening(self._story.time, self._me, "left"))
        super().stop()

    def _seen(self, happening: Happening) -> None:
        body: Any = happening.body
        self._add(happening if type(body) is bytes else msgspec.structs.replace(happening, body=_encoded(body)))

    def _sends(self, frame: Frame) -> None:
        if not frame.count or frame.to != ALL or any(isinstance(one, Relayed | Standing) for one in frame.headers):
            return
        frame = frame.copy()
        piece = piece_of(frame) if frame.headers else None
        if piece is not None:
            frame = self._sent.take(frame, piece)
        answers = next((header for header in frame.headers if isinstance(header, Parents)), Parents([]))
        for place, body in enumerate(decode_bodies(frame.kind, frame.bodies, frame.count)):
            id = (self._me, frame.first + place)
            parent = answers.of[place] if answers.of else None
            name = f"group {frame.group:x}"
            self._add(Happening(self._story.time, self._me, "send", name, id, _encoded(body), parent=parent))


def _encoded(body: Any) -> bytes:
    """The same bytes for the same body, whether it was decoded on its way or not."""
    if isinstance(body, Opaque):
        body = msgspec.msgpack.decode(body.encoded)
    return body if type(body) is bytes else msgspec.msgpack.encode(body, enc_hook=str)
