"""Conversations and slots of software buses without ``await``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .face import Face, one_by_one


class EnrolledSlot(Face):
    """A slot of a synchronous bus, with ``send``, ``ask``, ``move`` and ``drop_out``. See ``pluribus.Bus.enroll``."""

    def port(self, name: str) -> SlotPort:
        """A port that receives or answers: iterate it, or ``receive``."""
        return SlotPort(self._thread.ask(self._real.port, name), self._thread)

    def close(self) -> None:
        """Leave the slot; its routes stay."""
        if not self.closed and self._real.state == "enrolled":
            self._thread.call(self._real.close)


class SlotPort(Face):
    """Messages have ``acknowledge``, ``withhold`` and ``reply``; each is acknowledged when the next is asked for."""

    def receive(self, timeout: float | None = None) -> Face:
        """The next message; ``TimeoutError`` after ``timeout`` seconds."""
        return Face(self._thread.call(self._real.receive, timeout), self._thread)

    def __iter__(self) -> Iterator[Face]:
        return (Face(message, self._thread) for message in one_by_one(self._thread, aiter(self._real)))


class Room(Face):
    """One conversation. Iterate it for messages from now on."""

    def __iter__(self) -> Iterator[Any]:
        return one_by_one(self._thread, self._real.__aiter__())


class Conversations(Face):
    """All conversations that a member knows of."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self._thread.ask(lambda: list(self._real)))

    def invitations(self) -> Iterator[Any]:
        """Those that this member is not in: known ones, then new ones."""
        return one_by_one(self._thread, self._real.invitations())

    def join(self, name: str) -> Room:
        return Room(self._thread.call(self._real.join, name), self._thread)

    def look(self, name: str) -> Room:
        """Read one without being a member of it."""
        return Room(self._thread.call(self._real.look, name), self._thread)
