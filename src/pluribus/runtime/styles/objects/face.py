"""Objects on a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ...group.asking import ANSWER_S
from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from .communicator import ObjectCommunicator
    from .directory import ObjectDirectory
    from .handles import Handle
    from .networks import VirtualNetwork
    from .post import Post
    from .queue import CallQueue
    from .shadows import Shadow


class ObjectsFace:
    """The methods that objects add to ``Bus`` and ``ClientBus``."""

    @property
    def _post(self) -> Post:
        from .post import Post

        return cast(Styled, self)._style(Post)

    @property
    def directory(self) -> ObjectDirectory:
        """The objects of this process, and a way to find the objects of others:
        ``await bus.directory.find("printer")``."""
        from .directory import ObjectDirectory

        return ObjectDirectory(self._post)

    @property
    def communicator(self) -> ObjectCommunicator:
        """Sends messages to objects, and awaits answers."""
        from .communicator import ObjectCommunicator

        return ObjectCommunicator(self._post)

    @property
    def queued_calls(self) -> CallQueue:
        """Calls that wait on disk until their objects are there: ``await bus.queued_calls.open("calls.db")``, then
        ``await shadow.call(..., queued=True)``."""
        return self._post.queue

    async def bridge(self, other: ObjectsFace, alias: str) -> Shadow:
        """Add an object to this bus that stands for the objects of an alias on another bus: messages, calls and
        subscriptions are forwarded to them, and their answers come back."""
        from .bridge import Bridge

        bridge = Bridge(self, other, alias)
        shadow = await self.directory.add(bridge, alias)
        bridge.stand()
        return shadow

    def virtual_network(self, name: str, *, mode: str = "unicast") -> VirtualNetwork:
        """A group of objects that this program makes from shadows. ``mode="multicast"`` sends each message once to all
        processes; ``Refused`` where the engine has no multicast."""
        from .networks import VirtualNetwork

        return VirtualNetwork(self._post, self.communicator, name, mode)

    def omni(self, interface: type, *, results: str = "none", timeout: float | None = ANSWER_S) -> Handle:
        """A handle of every object with an interface, anywhere on the bus."""
        return self._handle("omni", interface, "", results, timeout)

    def group_handle(
        self, interface: type, group: str, *, results: str = "none", timeout: float | None = ANSWER_S
    ) -> Handle:
        """A handle of every object with an interface and this alias."""
        return self._handle("group", interface, group, results, timeout)

    def uni(self, interface: type, shadow: Shadow, *, timeout: float | None = ANSWER_S) -> Handle:
        """A handle of one object."""
        return self._handle("uni", interface, shadow.id, "first", timeout)

    def _handle(self, how: str, interface: type, receiver: str, results: str, timeout: float | None) -> Handle:
        from .handles import Handle

        return Handle(self._post.calls, how, interface, receiver, results, timeout)
