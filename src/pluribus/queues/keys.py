"""Messages of one key: delivered in the order in which they were sent, and one at a time.

A key has a *line* of the messages that carry it, ordered by their numbers. The first of the line may be delivered;
while a consumer holds one message of the line, or one waits for its next try, no other may. The lines are not part of
the state: they follow from the messages.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left


class KeyLine:
    """``busy`` is the message that blocks the key: it is held, or waits for its next try; -1: none."""

    __slots__ = ("busy", "things")

    def __init__(self) -> None:
        self.things = array("q")
        self.busy = -1


class KeyLines:
    def __init__(self) -> None:
        self._lines: dict[str, KeyLine] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, key: str) -> KeyLine:
        return self._lines[key]

    def add(self, key: str, thing: int) -> None:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = KeyLine()
        things = line.things
        if not things or things[-1] < thing:
            things.append(thing)
        else:
            things.insert(bisect_left(things, thing), thing)

    def remove(self, key: str, thing: int) -> None:
        line = self._lines.get(key)
        if line is None:
            return
        if line.busy == thing:
            line.busy = -1
        at = bisect_left(line.things, thing)
        if at < len(line.things) and line.things[at] == thing:
            del line.things[at]
        if not line.things:
            del self._lines[key]

    def first(self, key: str) -> int:
        """The message of the key that may be delivered; -1 if none may."""
        line = self._lines.get(key)
        return -1 if line is None or line.busy >= 0 else line.things[0]

    def block(self, key: str, thing: int) -> None:
        line = self._lines[key]
        assert line.busy in (-1, thing), f"messages {line.busy} and {thing} of one key at once"
        line.busy = thing

    def free(self, key: str, thing: int) -> None:
        line = self._lines.get(key)
        if line is not None and line.busy == thing:
            line.busy = -1
