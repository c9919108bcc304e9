"""Members of a group that do not read: how the application is told, and what is done about it.

Windows report a receiver that has left no room for some seconds (``NoRoom``), repeatedly while that lasts. The
application is told once, by ``Stalled``, and by ``Resumed`` when it is over. The sender chooses what else happens:

*wait*     nothing: the sender waits, and nothing is lost. The default.
*exclude*  the member is asked to leave the group (``PleaseLeave``), repeatedly until it does. It is alive and only its
           application does not read, so it leaves by itself, and its application gets ``Excluded``. Dead members are
           found by the failure detector.
*drop*     the window does not wait for it any more; only on stacks that promise nothing else.
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
    """To a member that does not read: leave the group, because others wait for you."""

    reason: Annotated[str, msgspec.Meta(max_length=256)]


class StalledMembers:
    """The stalled members in all groups of one member, as the application was told."""

    def __init__(self) -> None:
        self._told: dict[tuple[int, int], set[int]] = {}
        """By group and member: the streams to which it leaves no room."""

    def changed(self, channel: Channel, to: int, member: int, *, over: bool) -> Event | None:
        """A report of the window: returns what the application is to be told."""
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
        """The group has other members now: forget those that are gone."""
        gone = [
            key for key in self._told if key[0] == channel.number and (key[1] not in channel.view or channel.closed)
        ]
        for key in gone:
            del self._told[key]
        return [Resumed(MemberId(member), "", channel.name) for _, member in gone]


def checked_wish(stalled: str, provided: set[str]) -> str:
    """The wish for members that do not read; ``BadInput`` if this stack does not offer it."""
    if stalled not in WISHES:
        raise BadInput(f"stalled={stalled!r} is unknown: use {', '.join(WISHES)}")
    if stalled == DROP and "reliability" in provided:
        raise BadInput("stalled='drop' breaks what this stack promises: use wait or exclude, or stack='best-effort'")
    return stalled
