"""Running the two or more processes of a measurement, and getting their answers back."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..core.errors import PluribusError

Role = tuple[Callable[..., None], tuple[Any, ...]]
"""What a process does, and with what."""

_context = multiprocessing.get_context("spawn")  # a forked child would inherit loops, threads and sockets


class Together:
    """What the processes of one measurement share: a start line and a place for answers."""

    def __init__(self, parties: int) -> None:
        self._barrier = _context.Barrier(parties)
        self._answers = _context.Queue()

    def wait(self) -> None:
        self._barrier.wait(60)

    def answer(self, value: Any) -> None:
        self._answers.put(value)

    def collect(self, seconds: float) -> Any:
        try:
            return self._answers.get(timeout=seconds)
        except queue.Empty:
            raise PluribusError(
                f"a benchmark process did not answer in {seconds:g} s: is the machine overloaded?"
            ) from None


def measure(roles: Sequence[Role], answers: int, seconds: float = 120) -> list[Any]:
    """Run each role in a process of its own with ``(together, *arguments)``; return what they answered."""
    together = Together(len(roles))
    processes = [_context.Process(target=role, args=(together, *arguments), daemon=True) for role, arguments in roles]
    for process in processes:
        process.start()
    try:
        return [together.collect(seconds) for _ in range(answers)]
    finally:
        for process in processes:
            process.join(2)
            if process.is_alive():
                with suppress(OSError):
                    process.kill()
            process.join()
