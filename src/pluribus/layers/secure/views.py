"""The keys of views: of the present view, of earlier ones for frames under way, and keys that came before their
view."""

from __future__ import annotations

from ...core.limits import OLD_KEYS_MAX
from .headers import ViewName
from .keys import AESGCM, sender_cipher, view_key_name
from .replay import ReplayWindow

EARLY_MAX = 4


class ViewKeyring:
    """One view's key; each sender's cipher and window are made when it is first heard."""

    __slots__ = ("key", "members", "name", "seats", "view")

    def __init__(self, view: ViewName, members: tuple[int, ...], key: bytes) -> None:
        self.view = view
        self.members = frozenset(members)
        self.key = key
        self.name = view_key_name(key)
        self.seats: dict[int, tuple[AESGCM, ReplayWindow]] = {}

    def seat(self, member: int) -> tuple[AESGCM, ReplayWindow] | None:
        """None for somebody who is not in the view."""
        found = self.seats.get(member)
        if found is None and member in self.members:
            found = self.seats[member] = (sender_cipher(self.key, member), ReplayWindow())
        return found

    def __repr__(self) -> str:
        return f"<keyring of view {self.view}>"


class Keyrings:
    """``current`` is None while the key of the present view is awaited."""

    def __init__(self) -> None:
        self.view: ViewName = (0, 0)
        self.members: tuple[int, ...] = ()
        self.current: ViewKeyring | None = None
        self._old: list[ViewKeyring] = []
        self._early: dict[ViewName, bytes] = {}
        self.by_name: dict[int, ViewKeyring] = {}

    def enter(self, view: ViewName, members: tuple[int, ...]) -> bytes | None:
        """A view begins. Returns its key, if that has come already."""
        if self.current is not None:
            self._old.append(self.current)
            while len(self._old) > OLD_KEYS_MAX:
                self.retire(self._old[0])
        self.current = None
        self.view, self.members = view, members
        key = self._early.pop(view, None)
        self._early = {early: other for early, other in self._early.items() if early > view}
        return key

    def take(self, key: bytes) -> ViewKeyring:
        """The key of the present view is here."""
        self.current = ViewKeyring(self.view, self.members, key)
        self.by_name[self.current.name] = self.current
        return self.current

    def keep_early(self, view: ViewName, key: bytes) -> None:
        self._early.setdefault(view, key)
        if len(self._early) > EARLY_MAX:
            del self._early[min(self._early)]

    def retire(self, ring: ViewKeyring) -> None:
        """Forget a key: frames under it are not accepted any more, and it cannot be asked for."""
        if ring in self._old:
            self._old.remove(ring)
            self.by_name.pop(ring.name, None)

    def validate(self) -> None:
        assert len(self._old) <= OLD_KEYS_MAX and len(self._early) <= EARLY_MAX
        assert all(view > self.view for view in self._early)
        rings = [*self._old, *([self.current] if self.current is not None else [])]
        assert {ring.name for ring in rings} == self.by_name.keys()
        assert self.current is None or self.current.view == self.view
