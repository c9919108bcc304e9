"""Frees frames that nobody will ask for again, a few at a time.

When a view ends, all frames that were kept in it can be freed, thousands on a busy bus. That takes longer than to agree
on the next view, and senders would have to wait for it; so it is done afterwards, in small steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...core.frame import Frame
from ...core.limits import LEFTOVER_FRAMES_MAX
from ...core.ports import Timer

FEW = 64
"""So few are freed at once, because that takes no longer than to remember them."""
PAUSE_S = 0.1
"""The pause before the first step, in which callers that waited for the view go on."""
STEP_FRAMES = 256
STEP_S = 0.01

After = Callable[[float, Callable[[], None]], Timer]


class Leftovers:
    """``take`` frames that are not needed any more; they are freed ``later``."""

    def __init__(self) -> None:
        self._frames: deque[deque[Frame]] = deque()
        self._timer: Timer | None = None
        self.count = 0

    def take(self, frames: deque[Frame]) -> None:
        """Take frames over; the caller gives them up."""
        if len(frames) > FEW:
            self._frames.append(frames)
            self.count += len(frames)
            while self.count > LEFTOVER_FRAMES_MAX:
                self.count -= len(self._frames.popleft())

    def free_later(self, after: After, delay_s: float = PAUSE_S) -> None:
        if self._frames and self._timer is None:
            self._timer = after(delay_s, lambda: self._free(after))

    def _free(self, after: After) -> None:
        self._timer = None
        left = STEP_FRAMES
        while left and self._frames:
            oldest = self._frames[0]
            some = min(left, len(oldest))
            for _ in range(some):
                oldest.popleft()
            left -= some
            self.count -= some
            if not oldest:
                self._frames.popleft()
        self.free_later(after, STEP_S)

    def validate(self) -> None:
        assert self.count == sum(map(len, self._frames)) <= LEFTOVER_FRAMES_MAX
