"""Faults as layers: put one into a stack, at the height where the fault should strike.

Directly above ``transport`` a fault stands for a bad network; further up it tests what one layer assumes about the
layer below it. Each strikes frames on their way up with some probability, and counts how often.
"""

from __future__ import annotations

from typing import Any

from ..core.errors import BadStack, MalformedFrame
from ..core.frame import Frame
from ..stack.layer import Layer


class Fault(Layer):
    """strikes a share of the frames"""

    def __init__(self, p: float = 0.1) -> None:
        if not 0 <= p <= 1:
            raise BadStack(f"{self.name}(p={p}) is no probability: use 0 to 1")
        self.p = p
        self.struck = 0

    def up(self, frame: Frame) -> None:
        if self.ports.random.random() < self.p:
            self.struck += 1
            self.strike(frame)
        else:
            self.pass_up(frame)

    def strike(self, frame: Frame) -> None:
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        return {"p": self.p}

    def stats(self) -> dict[str, Any]:
        return {"struck": self.struck}


class Drop(Fault):
    """loses a share of the frames"""

    name = "drop"

    def strike(self, frame: Frame) -> None:
        """It never arrived."""


class Duplicate(Fault):
    """delivers a share of the frames twice"""

    name = "duplicate"

    def strike(self, frame: Frame) -> None:
        again = frame.copy()
        self.pass_up(frame)
        self.pass_up(again)


class Delay(Fault):
    """delivers a share of the frames later, behind others"""

    name = "delay"

    def __init__(self, p: float = 0.1, seconds: float = 0.05) -> None:
        super().__init__(p)
        if seconds < 0:
            raise BadStack(f"delay(seconds={seconds}) is no time: use 0 or more")
        self.seconds = seconds

    def strike(self, frame: Frame) -> None:
        self.after(self.seconds * self.ports.random.random(), lambda: self.pass_up(frame))

    def options(self) -> dict[str, Any]:
        return {"p": self.p, "seconds": self.seconds}


class Reorder(Fault):
    """swaps a share of the frames with the one after"""

    name = "reorder"

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)
        self._held: Frame | None = None

    def up(self, frame: Frame) -> None:
        super().up(frame)
        if self._held is not None and self._held is not frame:
            held, self._held = self._held, None
            self.pass_up(held)

    def strike(self, frame: Frame) -> None:
        if self._held is not None:
            self.pass_up(self._held)
        self._held = frame


class Corrupt(Fault):
    """flips a bit in a share of the frames; what no longer decodes is lost"""

    name = "corrupt"

    def strike(self, frame: Frame) -> None:
        codec, random = self.node.codec, self.ports.random
        data = bytearray(codec.encode(frame))
        at = random.randrange(0, len(data))
        data[at] ^= 1 << random.randrange(0, 8)
        try:
            self.pass_up(codec.decode(bytes(data)))
        except MalformedFrame:
            return
