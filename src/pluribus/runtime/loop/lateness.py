"""Watching the loop: when it comes back late, say so, with the stack of the call that held it.

A heartbeat runs on the loop and a thread looks at it from outside, because a blocked loop cannot look at itself. One
watch serves all members of a loop. The thread sleeps nearly always; it looks at the stack only once an episode.

Not every late heartbeat is somebody's fault, and who has done nothing wrong is not blamed:

- *The process stood still.* It was stopped (SIGSTOP), suspended with its machine, or had no processor. The thread then
  oversleeps as well, and the process has used no processor time meanwhile. That is told in a sentence of its own.
- *The loop waits* in ``select``, and nobody holds it: it has not been given the processor yet.
- *This library imports* a part of itself when that is first used. It happens once, and cannot be awaited.

``PLURIBUS_LATE_S`` sets what is late; with 0 nobody watches.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from time import monotonic, process_time
from types import FrameType

from ...core.errors import BadInput, SimulationError
from ...core.limits import LATE_S

log = logging.getLogger(__name__)

VARIABLE = "PLURIBUS_LATE_S"
STOOD_STILL_S = 1.0
"""A process that stood still for so long is told; others may have taken it for dead."""
_BEAT_S = 0.05
_IDLE = ("selectors", "asyncio.base_events", "asyncio.runners", "asyncio.windows_events")
"""Modules whose code is innermost in a loop that waits, on any loop."""
_LOOPS = ("asyncio.base_events", "asyncio.events", "asyncio.runners")
"""Modules whose code calls what runs on a loop."""
_OURS = __name__.partition(".")[0]
_watches: dict[asyncio.AbstractEventLoop, LoopWatch] = {}


async def loaded(module: str) -> None:
    """Import a heavy part of this library in a thread, so that the loop goes on; nothing if it is there already. A part
    that another thread is still importing is waited for."""
    found = sys.modules.get(module)
    if found is None or getattr(found.__spec__, "_initializing", False):
        try:
            await asyncio.to_thread(import_module, module)
        except SimulationError:  # a simulated world has no threads, and its time stands still meanwhile
            import_module(module)


def late_after_s() -> float:
    """Seconds after which a loop is late, by the environment; 0: nobody watches."""
    text = os.environ.get(VARIABLE, "")
    try:
        late_s = float(text) if text else LATE_S
    except ValueError:
        late_s = -1.0
    if not 0 <= late_s <= threading.TIMEOUT_MAX:
        raise BadInput(f"{VARIABLE}={text!r} is no number of seconds: write 0.5, or 0 so that nobody watches")
    return late_s


class LoopWatch:
    def __init__(self, loop: asyncio.AbstractEventLoop, late_s: float) -> None:
        self.users = 0
        self.episodes = 0
        self.standstills = 0
        self._late_s = late_s
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
        woke, worked = monotonic(), process_time()
        counted_from, reported_at = woke, -1.0
        while not self._stopped.wait(self._late_s) and not self._loop.is_closed():
            now, processed = monotonic(), process_time()
            overslept_s, used_s = now - woke - self._late_s, processed - worked
            woke, worked = now, processed
            if not self._loop.is_running():  # nobody waits for a loop that was put aside, as notebooks do
                counted_from = now
            elif overslept_s > self._late_s and used_s < overslept_s / 2:
                self._stood_still(overslept_s)
                counted_from = now
            late_s = now - max(self._beat_at, counted_from) - _BEAT_S
            if late_s > self._late_s and reported_at != self._beat_at:
                frame = sys._current_frames().get(self._thread_id)
                if _waits(frame) or _imports_ours(frame):
                    counted_from = now
                    continue
                reported_at = self._beat_at
                self._report(late_s, frame)

    def _stood_still(self, seconds: float) -> None:
        if seconds >= STOOD_STILL_S:
            self.standstills += 1
            log.warning(
                "this process stood still for %.1f s: it was stopped or suspended, or had no processor; other members "
                "may have taken it for dead",
                seconds,
            )

    def _report(self, late_s: float, frame: FrameType | None) -> None:
        self.episodes += 1
        where = "".join(traceback.format_stack(frame, limit=8)) if frame is not None else "unknown\n"
        log.warning("the loop is late by %.0f ms; a call that should be awaited holds it:\n%s", late_s * 1e3, where)


def _waits(frame: FrameType | None) -> bool:
    """Whether nobody holds the loop: it waits for something to happen, or to be given the processor."""
    return frame is not None and frame.f_globals.get("__name__") in _IDLE


def _imports_ours(frame: FrameType | None) -> bool:
    """Whether code of this library imports something: of what the loop called, the frame outside of all imports."""
    importing = False
    importer: FrameType | None = None
    while frame is not None and frame.f_globals.get("__name__") not in _LOOPS:
        inside = frame.f_code.co_filename.startswith("<frozen importlib")
        if importing and not inside:
            importer = frame
        importing = inside
        frame = frame.f_back
    return importer is not None and str(importer.f_globals.get("__name__")).partition(".")[0] == _OURS


def watch_loop(loop: asyncio.AbstractEventLoop, late_s: float = LATE_S) -> Callable[[], None]:
    """Watch the loop until the returned function is called; call it once."""
    if not late_s:
        return lambda: None
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = LoopWatch(loop, late_s)
    watch.users += 1

    def release() -> None:
        watch.users -= 1
        if watch.users == 0:
            watch.stop()
            _watches.pop(loop, None)

    return release
