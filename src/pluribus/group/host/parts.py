"""Which parts of a machine's state changed since its last snapshot, and what each was when the next snapshot began.

A snapshot is taken over several turns of the loop, while commands are still applied. It shows the moment of ``freeze``
all the same: a part that is about to change and is not written yet is encoded first (copy on write). For that a machine
calls ``touch`` *before* it changes anything in a part. A change without ``touch`` would be missing in the snapshot; the
simulator's campaigns find such mistakes by comparing the states of keepers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Parts:
    """``encode`` gives a part as it is now."""

    __slots__ = ("_encode", "_frozen", "_taken", "_waiting", "touched")

    def __init__(self, encode: Callable[[str], bytes]) -> None:
        self._encode = encode
        self.touched: set[str] = set()
        """Changed since ``freeze``, or since the last snapshot that was kept if none is being taken."""
        self._waiting: set[str] = set()
        """Changed before ``freeze`` and not encoded yet."""
        self._taken: set[str] = set()
        """All that changed before ``freeze``."""
        self._frozen: dict[str, bytes] = {}

    def touch(self, name: str) -> None:
        """Called before this part is changed."""
        if name in self._waiting:
            self._waiting.discard(name)
            self._frozen[name] = self._encode(name)
        self.touched.add(name)

    def gone(self, name: str) -> None:
        """This part is not there any more. A snapshot that is being taken still has it, if it was touched before."""
        self.touched.discard(name)

    def freeze(self, names: Iterable[str]) -> list[str]:
        """The names that changed, among all. ``encoded`` gives these parts as they are now, whatever changes later."""
        self._taken = self.touched & set(names)
        self._waiting = set(self._taken)
        self._frozen.clear()
        self.touched = set()
        return sorted(self._taken)

    def encoded(self, name: str) -> bytes:
        self._waiting.discard(name)
        found = self._frozen.pop(name, None)
        return found if found is not None else self._encode(name)

    def thaw(self, kept: bool) -> None:
        """The snapshot was kept or not; if not, the parts that had changed before it belong to the next one."""
        if not kept:
            self.touched |= self._taken
        self._waiting.clear()
        self._taken = set()
        self._frozen.clear()

    def clear(self) -> None:
        """The state was replaced by a snapshot: nothing changed since."""
        self.touched.clear()
        self.thaw(True)
