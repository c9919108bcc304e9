"""Subprotocols: messages that belong together, handled by a class of their own for any object.

A message with ``:subprotocol NAME`` is handled by the subprotocol of that name, if its receiver has it. Every object
has ``MulticastGroupControl`` (section 2.2 of the source): by it a sender lets an object join or leave a group::

    (achieve :subprotocol MulticastGroupControl :content joinMulticastGroup :groupID groupname)
    (achieve :subprotocol MulticastGroupControl :content quitMulticastGroup :groupID groupname)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..core.errors import BadInput
from ..wire.kqml import Kqml, Word, kqml, name_of
from .handlers import handles

if TYPE_CHECKING:
    from .directory import Directory
    from .residents import Resident

JOIN, QUIT = "joinMulticastGroup", "quitMulticastGroup"


class Subprotocol:
    """The base of them: ``name`` is what messages say. Made once for each object that has it."""

    name: ClassVar[str] = ""

    def __init__(self, resident: Resident, directory: Directory) -> None:
        self.resident = resident
        self.directory = directory


class MulticastGroupControl(Subprotocol):
    """Joining and leaving a group is taking its name as an alias, and giving it up."""

    name = "MulticastGroupControl"

    @handles("achieve", subprotocol="MulticastGroupControl", quick=True)
    def control(self, message: Kqml) -> None:
        group = message.get("groupID")
        if not isinstance(group, str):
            raise BadInput("MulticastGroupControl without a group: say which with :groupID")
        if message.content == JOIN:
            self.directory.add_alias(str(group), self.resident)
        elif message.content == QUIT:
            self.directory.delete_alias(str(group), self.resident)
        else:
            raise BadInput(f"{message.content!r} is none of {JOIN} and {QUIT}: send one of these as the content")


class Naming(Subprotocol):
    """``register`` and ``unregister``, for objects that do not handle them themselves."""

    @handles("register", quick=True)
    def register(self, message: Kqml) -> None:
        self.directory.add_alias(_name_in(message), self.resident)

    @handles("unregister", quick=True)
    def unregister(self, message: Kqml) -> None:
        self.directory.delete_alias(_name_in(message), self.resident)


def control_message(what: str, group: str) -> Kqml:
    """One of the two messages of the source."""
    return kqml("achieve", subprotocol=Word(MulticastGroupControl.name), content=Word(what), groupID=name_of(group))


def _name_in(message: Kqml) -> str:
    name = message.get("name")
    if not isinstance(name, str):
        raise BadInput(f"{message.performative} without a name: say which alias with :name")
    return str(name)
