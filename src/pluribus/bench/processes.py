"""Running the two or more processes of a measurement, and getting their answers back."""

from __future__ import annotations

import logging
import multiprocessing
import queue
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from ..core.errors import PluribusError

Role = tuple[Callable[..., None], tuple[Any, ...]]
"""The function of a process, and its arguments."""

POLL_S = 0.5
context = multiprocessing.get_context("spawn")  # a forked child would inherit loops, threads and sockets


def quiet() -> None:
    """Log no late loops: more members than cores make loops late."""
    logging.getLogger("pluribus").setLevel(logging.ERROR)


class Together:
    """What the processes of one measurement share: a start line and a place for answers."""

    def __init__(self, parties: int) -> None:
        self._barrier = context.Barrier(parties)
        self._answers = context.Queue()

    def wait(self) -> None:
        self._barrier.wait(60)

    def answer(self, value: Any) -> None:
        self._answers.put(value)

    def collect(self, seconds: float, failed: Callable[[], bool] = lambda: False) -> Any:
        """The next answer. Raises an error after so many seconds, or as soon as ``failed`` says that no answer will
        come."""
        until = perf_counter() + seconds
        while True:
            broken = failed()  # asked before the look into the queue: an answer given before the failure counts
            with suppress(queue.Empty):
                return self._answers.get(timeout=min(POLL_S, seconds))
            if broken:
                raise PluribusError("a benchmark process failed: its own words are above")
            if perf_counter() > until:
                raise PluribusError(f"a benchmark process did not answer in {seconds:g} s: is the machine overloaded?")


def measure(roles: Sequence[Role], answers: int, seconds: float = 120) -> list[Any]:
    """Run each role in a process of its own with ``(together, *arguments)``; return what they answered."""
    together = Together(len(roles))
    processes = [context.Process(target=role, args=(together, *arguments), daemon=True) for role, arguments in roles]
    for process in processes:
        process.start()
    try:
        return [
            together.collect(seconds, lambda: any(process.exitcode for process in processes)) for _ in range(answers)
        ]
    except BaseException:
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.join(2)
            if process.is_alive():
                with suppress(OSError):
                    process.kill()
            process.join()
