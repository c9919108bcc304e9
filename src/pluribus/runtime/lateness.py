"""Watching the loop: when it comes back late, say so, with the stack of whoever held it.

A heartbeat runs on the loop and a thread looks at it from outside, because a blocked loop cannot look at itself. One
watch serves all members of a loop. The thread sleeps nearly always; it looks at the stack only once an episode.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from time import monotonic

from ..core.limits import LATE_S

log = logging.getLogger(__name__)

_BEAT_S = 0.05
_watches: dict[asyncio.AbstractEventLoop, LoopWatch] = {}


class LoopWatch:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.users = 0
        self.episodes = 0
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._beat_at = monotonic()  # not the loop's time: uvloop's is not for other threads to ask
        self._stopped = threading.Event()
        self._timer = loop.call_later(_BEAT_S, self._beat)
        self._thread = threading.Thread(target=self._look, name="pluribus-loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._timer.cancel()
        self._stopped.set()

    def _beat(self) -> None:
        self._beat_at = monotonic()
        self._timer = self._loop.call_later(_BEAT_S, self._beat)

    def _look(self) -> None:
        reported_at = -1.0
        while not self._stopped.wait(LATE_S) and not self._loop.is_closed():
            if not self._loop.is_running():  # nobody waits for a loop that was put aside, as notebooks do
                self._beat_at = monotonic()
            late_s = monotonic() - self._beat_at - _BEAT_S
            if late_s > LATE_S and reported_at != self._beat_at:
                reported_at = self._beat_at
                self.episodes += 1
                frame = sys._current_frames().get(self._thread_id)
                where = "".join(traceback.format_stack(frame, limit=8)) if frame is not None else "unknown\n"
                log.warning(
                    "the loop is late by %.0f ms; a call that should be awaited holds it:\n%s", late_s * 1e3, where
                )


def watch_loop(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Watch the loop until the returned function is called; call it once."""
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = LoopWatch(loop)
    watch.users += 1

    def release() -> None:
        watch.users -= 1
        if watch.users == 0:
            watch.stop()
            _watches.pop(loop, None)

    return release
