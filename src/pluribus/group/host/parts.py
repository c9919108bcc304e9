"""Which parts of a machine's state changed since its last snapshot, and what each was when the next snapshot began.

A snapshot is taken over several turns of the loop, while commands go on to be applied. It is of the moment of
``freeze`` all the same: a part that is about to change and was not written yet is encoded first (copy on write). That
holds for every part that the snapshot needs, be it only because the last one does not have it. So a machine calls
``touch`` *before* it changes anything of a part. A change without it would be missing in the snapshot: forgotten parts
are what campaigns look for by comparing the states of keepers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable


class Parts:
    """``encode`` gives a part as it is now."""

    __slots__ = ("_encode", "_frozen", "_taken", "_waiting", "touched")

    def __init__(self, encode: Callable[[str], bytes]) -> None:
        self._encode = encode
        self.touched: set[str] = set()
        """Changed since ``freeze``, or since the last snapshot that was kept if none is being taken."""
        self._waiting: set[str] = set()
        """Due since ``freeze`` and not encoded yet."""
        self._taken: set[str] = set()
        """All that was due at ``freeze``."""
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

    def freeze(self, names: Iterable[str], known: Collection[str]) -> list[str]:
        """Of all names, those that changed or are not ``known``. ``encoded`` gives them as they are now, whatever
        changes from here on."""
        due = [name for name in names if name in self.touched or name not in known]
        self._taken = set(due)
        self._waiting = set(due)
        self._frozen.clear()
        self.touched = set()
        return due

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
