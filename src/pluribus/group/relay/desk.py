"""The desk of a process: handles words about relaying, and holds its own senders to groups that it is not in."""

from __future__ import annotations

from collections.abc import Callable

from ...core.frame import Frame, Header
from ...core.ids import MemberId, checked_name, number_of
from ...core.ports import Timer
from ...stack.events import Members
from .member import Relay
from .outside import Outside
from .words import CLOSED, Forward, Settled


class RelayDesk:
    """One process's desk. ``relay_of`` finds the relay of an open group of which the process is a member; ``is_closed``
    is true for a group of which it is a member and that is not open."""

    def __init__(
        self,
        me: int,
        *,
        pass_down: Callable[[Frame], None],
        stimulus: Callable[[Callable[[], None]], None],
        after: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
        relay_of: Callable[[int], Relay | None],
        is_closed: Callable[[int], bool],
    ) -> None:
        self._me = me
        self._pass_down = pass_down
        self._stimulus = stimulus
        self._after = after
        self._now = now
        self._relay_of = relay_of
        self._is_closed = is_closed
        self.outsides: dict[int, Outside] = {}

    def outside(self, name: str, known: Members | None) -> Outside:
        """This process as a sender to a group that it is not in; ``known`` are the group's members, if they are
        known."""
        number = number_of(checked_name(name, "the group"))
        found = self.outsides.get(number)
        if found is None:
            say = self.say
            found = self.outsides[number] = Outside(
                name, MemberId(self._me), say=lambda to, word: say(number, to, word), after=self._after, now=self._now
            )
        if known is not None:
            found.shown(known)
        return found

    def say(self, group: int, to: int, word: Header) -> None:
        """To another process by a frame; to this one after what is going on."""
        if to == self._me:
            self._stimulus(lambda: self.hear(to, group, word))
        else:
            self._pass_down(Frame(sender=self._me, to=to, group=group, headers=[word]))

    def hear(self, sender: int, group: int, word: Header) -> None:
        if isinstance(word, Forward):
            relay = self._relay_of(group)
            if relay is not None:
                relay.asked(sender, word)
            elif self._is_closed(group):
                self.say(group, sender, Settled(word.stamp, word.begins, word.begins, CLOSED))
        elif isinstance(word, Settled) and group in self.outsides:
            self.outsides[group].heard(sender, word)

    def shown(self, group: Members) -> None:
        if group.group in self.outsides:
            self.outsides[group.group].shown(group)

    def apart(self) -> None:
        """The bus's view does not continue the one before."""
        for outside in self.outsides.values():
            outside.apart()

    def close(self) -> None:
        for outside in self.outsides.values():
            outside.close()

    def validate(self) -> None:
        for outside in self.outsides.values():
            outside.validate()
