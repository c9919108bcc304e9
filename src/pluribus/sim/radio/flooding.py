"""Plain flooding. Source: M2MC, 2.4.3.

Theory of operation
-------------------
A node that gets a message for the first time broadcasts it once, after a short
random pause. There is no state but the messages that were seen, and nothing to repair when nodes move: every path that
exists is tried.

Promises: nothing. A message reaches a member if some path to it exists while the wave passes and no collision cuts the
last one; each node sends a message once, so a message costs as many transmissions as nodes get it.
"""

from __future__ import annotations

from typing import Any

from .node import JITTER_S, Data, RadioNode


class Flooding(RadioNode):
    def send(self, data: Data) -> None:
        self.first(data)
        self.air.broadcast(self.me, data)

    def receive(self, sender: int, word: Any) -> None:
        if isinstance(word, Data) and self.first(word):
            self.take(word)
            self.relay(sender, word)

    def relay(self, sender: int, data: Data) -> None:
        self.air.broadcast(self.me, data, JITTER_S)
