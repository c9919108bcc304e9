"""Runs stimuli one after another, and leads frames past layers that have nothing to do with them; import both from
``quick``.

``c`` has the same in C. It is used where it was compiled, because every frame passes through both. A test holds the two
to the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

from ..core.frame import Frame

Pass = Callable[[Frame], None]


class Runner:
    """Runs stimuli, never one inside another, and lets layers settle after each of them."""

    _running: bool
    _inside: bool
    _waiting: list[Callable[[], None]]
    _settling: list[Any]
    """The layers that settle; a layer is asked only if it is ``unsettled``."""

    def run(self, stimulus: Callable[..., None], *given: object) -> None:
        """Handle one stimulus and settle. A stimulus from within another one is handled after it, never inside it."""
        if not self._running:
            return
        if self._inside:
            self._waiting.append(partial(stimulus, *given) if given else stimulus)
            return
        self._inside = True
        try:
            stimulus(*given)
            while self._waiting:
                self._waiting.pop(0)()
            for layer in self._settling:
                if layer.unsettled:
                    layer.settle()
        finally:
            self._inside = False
        if self._waiting:
            self.run(self._waiting.pop(0))


def way(own: Mapping[type, Pass], concerned: Sequence[tuple[Container[int], Pass]], after: Pass) -> Pass:
    """A function that passes a frame on. If the frame's last header is one of ``own``, it goes to that function; else,
    if its group is in one of the sets of ``concerned``, to the first of these; else to ``after``."""
    find = own.get

    def passes(frame: Frame) -> None:
        headers = frame.headers
        if headers:
            taker = find(type(headers[-1]))
            if taker is not None:
                taker(frame)
                return
        group = frame.group
        for groups, taker in concerned:
            if group in groups:
                taker(frame)
                return
        after(frame)

    return passes
