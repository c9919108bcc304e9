"""A virtual network: a group that its sender makes of shadows (section 2.3 of the source).

In unicast mode a message goes to each shadow by itself. In multicast mode it goes once to all processes, for the
objects that have the network's name as an alias. ``add`` gives the alias to an object and ``delete`` takes it, by the
subprotocol ``MulticastGroupControl``, in both modes, so that the mode may be switched at any time. So in multicast mode
an object that took the alias by itself gets the message too.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..core.errors import BadInput, Overflow
from ..core.limits import NETWORK_SHADOWS_MAX
from ..wire.kqml import Kqml
from .names import checked_alias
from .subprotocols import JOIN, QUIT, control_message

UNICAST, MULTICAST = "unicast", "multicast"


def checked_mode(mode: str) -> str:
    if mode not in (UNICAST, MULTICAST):
        raise BadInput(f"mode={mode!r} is none of 'unicast' and 'multicast': choose one of them")
    return mode


class NetworkMembers:
    """The ids of one virtual network, and the messages to objects that come and go."""

    def __init__(self, name: str) -> None:
        self.name = checked_alias(name)
        self._ids: dict[str, None] = {}

    def add(self, id: str) -> Kqml:
        if id not in self._ids and len(self._ids) >= NETWORK_SHADOWS_MAX:
            raise Overflow(f"{NETWORK_SHADOWS_MAX} objects are in the network {self.name!r}: make another")
        self._ids[id] = None
        return control_message(JOIN, self.name)

    def delete(self, id: str) -> Kqml:
        if id not in self._ids:
            raise BadInput(f"{id} is not in the network {self.name!r}: delete what was added")
        del self._ids[id]
        return control_message(QUIT, self.name)

    def forget(self, id: str) -> None:
        """It never joined, or is gone."""
        self._ids.pop(id, None)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._ids))

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def __len__(self) -> int:
        return len(self._ids)
