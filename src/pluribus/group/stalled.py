"""Members of a group that do not read: who is told, and what is done about it.

Windows report a receiver that has left no room for a while (``NoRoom``), and again while that lasts. The application is
told once, by ``Stalled``, and by ``Resumed`` when it is over. What else happens is the wish of whoever sends:

*wait*     nothing: the sender waits, nothing is lost. The default.
*exclude*  the member is asked to leave the group (``PleaseLeave``). It is up, only its application does not read; so it
           leaves by itself, as if it had closed the group, and its application is raised ``Excluded``. It is asked
           again as long as it does not. A member that is not up is the failure detector's.
*drop*     the window counts it no more; only where nothing else is promised.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.errors import BadInput
from ..core.events import Event, Resumed, Stalled
from ..core.frame import Header
from ..core.ids import MemberId
from .channel import Channel

WAIT, EXCLUDE, DROP = WISHES = ("wait", "exclude", "drop")


class PleaseLeave(Header, tag=75):
    """To a member that does not read: others wait for it, and would rather not."""

    reason: Annotated[str, msgspec.Meta(max_length=256)]


class StalledMembers:
    """Of all groups of one member: who was told of as stalled."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], set[int]] = {}
        """By group and member, the streams that it leaves no room."""

    def changed(self, channel: Channel, to: int, member: int, *, over: bool) -> Event | None:
        """What the application is to be told."""
        key = (channel.number, member)
        streams = self._told.setdefault(key, set())
        before = bool(streams)
        (streams.discard if over else streams.add)(to)
        if not streams:
            del self._told[key]
        if before is bool(streams):
            return None
        kind = Resumed if before else Stalled
        return kind(MemberId(member), channel.view.names.get(member, ""), channel.name)

    def keep_only(self, channel: Channel) -> list[Event]:
        """The group has other members now: nobody waits for those who are gone."""
        gone = [
            key for key in self._told if key[0] == channel.number and (key[1] not in channel.view or channel.closed)
        ]
        for key in gone:
            del self._told[key]
        return [Resumed(MemberId(member), "", channel.name) for _, member in gone]


def checked_wish(stalled: str, provided: set[str]) -> str:
    """What to do with members that do not read, or ``BadInput`` that says what can be done."""
    if stalled not in WISHES:
        raise BadInput(f"stalled={stalled!r} is unknown: use {', '.join(WISHES)}")
    if stalled == DROP and "reliability" in provided:
        raise BadInput("stalled='drop' breaks what this stack promises: use wait or exclude, or stack='best-effort'")
    return stalled
