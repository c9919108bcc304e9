"""A virtual network on a bus: the same group in unicast mode and in multicast mode."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ....core.errors import NoMembers, NoObject
from ....objects.networks import MULTICAST, UNICAST, NetworkMembers, checked_mode
from ....wire.kqml import Kqml
from .communicator import ObjectCommunicator, _broadcast
from .shadows import Shadow, said_of

if TYPE_CHECKING:
    from .post import Post


class VirtualNetwork:
    """Made by ``bus.virtual_network``."""

    def __init__(self, post: Post, communicator: ObjectCommunicator, name: str, mode: str = UNICAST) -> None:
        self._post = post
        self._communicator = communicator
        self._members = NetworkMembers(name)
        self._mode = UNICAST
        self.switch(mode)

    @property
    def name(self) -> str:
        return self._members.name

    @property
    def mode(self) -> str:
        return self._mode

    def switch(self, mode: str) -> None:
        """Change the mode: messages go one by one (``"unicast"``), or once to all (``"multicast"``). ``Refused`` where
        the engine has no multicast; the mode then stays as it was."""
        if checked_mode(mode) == MULTICAST:
            self._communicator.check_multicast()
        self._mode = mode

    async def add(self, shadow: Shadow) -> None:
        """Let an object join: it takes the network's name as an alias. ``NoObject`` if it is gone."""
        already = shadow.id in self._members
        message = self._members.add(shadow.id)
        try:
            await shadow.ask(message)
        except BaseException:
            if not already:
                self._members.forget(shadow.id)
            raise

    async def delete(self, shadow: Shadow) -> None:
        """Let an object leave. One that is gone has left."""
        with suppress(NoObject, NoMembers):
            await shadow.ask(self._members.delete(shadow.id))

    async def multicast(self, message: Kqml | str, sender: object | None = None) -> None:
        """Send to all objects of the network. Objects that are gone are removed from it; when all others were sent to,
        ``NoObject`` names the removed ones."""
        said = said_of(message)
        assert isinstance(said, Kqml)
        if self._mode == MULTICAST:
            await self._post.broadcast(self.name, _broadcast(said), sender)
            return
        gone: list[str] = []
        for id in self._members:
            try:
                await self._post.send(id, said, sender)
            except (NoObject, NoMembers):
                self._members.forget(id)
                gone.append(id)
        if gone:
            raise NoObject(f"{', '.join(gone)} of the network {self.name!r} are gone, and forgotten: add others")

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, shadow: object) -> bool:
        return isinstance(shadow, Shadow) and shadow.id in self._members

    def __repr__(self) -> str:
        return f"<virtual network {self.name!r} of {len(self)} in {self._mode} mode>"
