"""Group join and leave: members on the network learn of conversations, join and leave them. Source: M2MC, chapter 5.

Theory of operation
-------------------
Every member keeps a table of the conversations that it knows (``GIIT`` in the
thesis), each with its members: by person a counter and whether it is in. A member that comes to the network
*advertises*; every member answers with the list of conversations that it knows. A member that learns of a new one tells
its application, which joins or refuses. ``TRANSITIONS`` is figure 5.1: each word or wish in ``INITIAL`` leads to one
state, whose action is done at once, and back.

Where this differs from the thesis (``docs/design/conversations.md`` says why):

- *The counter decides.* Each join and leave of a person has a greater counter than any known before; of two rows the
  greater counts. In the thesis a person that has left stays so for ever, and a merge expels a member that came back. A
  member that finds itself among those that left, while it is in, joins again. One that finds itself in, after it left
  or refused, leaves again: others remember an earlier life of it, which had a greater counter.
- *Lists tell of conversations that are known*, not only of those that were joined: a conversation whose members are all
  away is still announced.
- *Answers to an advertisement are spread*: each member waits a random while and sends only conversations that others
  have not sent.
- *A member that leaves forgets that it was in*: the conversation is not reported to it until it advertises again.
- Refused conversations are remembered until the member's own next advertisement (as in the thesis).
- News is sent a second time, and lists once in a while, by one of the members with the same knowledge; so nothing
  depends on one datagram.

Promise: members that reach each other long enough know the same conversations, descriptions and members.

Bounds: ``GROUPS_MAX`` conversations, of which one sender may bring ``TOLD_MAX`` that this member has not joined;
``MEMBERS_MAX`` rows each. If all places are taken, a conversation takes that of one from the sender that brought most,
and a person who is on the network that of one who is not, who may be invented.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum, auto

import msgspec

from ..core.errors import BadInput, Overflow
from ..core.ports import Random
from .words import (
    CLOCK_MAX_S,
    COUNTER_MAX,
    MEMBERS_MAX,
    Advertise,
    GroupInfo,
    Groups,
    Join,
    Leave,
    LobbyWord,
    Row,
    encode,
)

GROUPS_MAX = 4_096
TOLD_MAX = 256
BACK_OFF_S = 0.5
PERIOD_S = 60.0
OVERHEAD_BYTES = 64


class JoiningState(StrEnum):
    """The states of figure 5.1."""

    INITIAL = auto()
    SEND_ADVERTISEMENT = auto()
    SEND_GROUPS = auto()
    RECEIVE_GROUPS = auto()
    SEND_JOIN = auto()
    UPDATE_GROUP = auto()
    SEND_LEAVE = auto()
    CREATE_GROUP = auto()


TRANSITIONS: dict[tuple[JoiningState, str], JoiningState] = {
    (JoiningState.INITIAL, "enter"): JoiningState.SEND_ADVERTISEMENT,
    (JoiningState.INITIAL, "advertisement"): JoiningState.SEND_GROUPS,
    (JoiningState.INITIAL, "groups"): JoiningState.RECEIVE_GROUPS,
    (JoiningState.INITIAL, "join"): JoiningState.UPDATE_GROUP,
    (JoiningState.INITIAL, "leave"): JoiningState.UPDATE_GROUP,
    (JoiningState.INITIAL, "wish to join"): JoiningState.SEND_JOIN,
    (JoiningState.INITIAL, "wish to leave"): JoiningState.SEND_LEAVE,
    (JoiningState.INITIAL, "wish to create"): JoiningState.CREATE_GROUP,
    (JoiningState.RECEIVE_GROUPS, "expelled"): JoiningState.SEND_JOIN,
    (JoiningState.UPDATE_GROUP, "expelled"): JoiningState.SEND_JOIN,
    (JoiningState.RECEIVE_GROUPS, "claimed"): JoiningState.SEND_LEAVE,
    (JoiningState.SEND_ADVERTISEMENT, "done"): JoiningState.INITIAL,
    (JoiningState.SEND_GROUPS, "done"): JoiningState.INITIAL,
    (JoiningState.RECEIVE_GROUPS, "done"): JoiningState.INITIAL,
    (JoiningState.SEND_JOIN, "done"): JoiningState.INITIAL,
    (JoiningState.UPDATE_GROUP, "done"): JoiningState.INITIAL,
    (JoiningState.SEND_LEAVE, "done"): JoiningState.INITIAL,
    (JoiningState.CREATE_GROUP, "done"): JoiningState.INITIAL,
}

NEW, JOINED, REFUSED = "new", "joined", "refused"


class KnownConversation:
    """A conversation as this member knows it."""

    __slots__ = ("description", "gid", "invite", "rows", "since", "standing", "teller")

    def __init__(self, gid: str, description: str, since: float, standing: str, teller: int = 0) -> None:
        self.gid = gid
        self.description = description
        self.since = since
        self.standing = standing
        """True: this member joined it. False: it refused it. None: it has not decided."""
        self.teller = teller
        self.invite = standing == NEW
        """True if the application is to be told of it with the next list."""
        self.rows: dict[str, Row] = {}

    def info(self) -> GroupInfo:
        rows = [self.rows[person] for person in sorted(self.rows)]
        return GroupInfo(self.gid, self.description, self.since, rows, len(rows))

    def beyond(self, info: GroupInfo) -> bool:
        """True if this member knows more than the sender of the word."""
        if (self.since, self.description) < (info.since, info.description) or len(self.rows) > info.total:
            return True
        return any(_news(self.rows[row.person], row) for row in info.rows if row.person in self.rows)

    def merge(self, row: Row, present: Collection[str]) -> bool:
        """Merge a row; true if it is news. In a full table a person who is ``present`` takes the place of one who is
        not."""
        known = self.rows.get(row.person)
        if known is not None and not _news(row, known):
            return False
        if known is None and len(self.rows) >= MEMBERS_MAX:
            if row.person not in present:
                return False
            gone = next((person for person in reversed(self.rows) if person not in present), None)
            if gone is None:
                return False
            del self.rows[gone]
        self.rows[row.person] = row
        return True

    def set_own(self, row: Row) -> None:
        """The row of this member's person, for which there is always room."""
        if row.person not in self.rows and len(self.rows) >= MEMBERS_MAX:
            self.rows.popitem()
        self.rows[row.person] = row


class Joining:
    """``heard`` and ``tick`` put words into ``out``, and conversations of which the application should be told into
    ``invitations``."""

    def __init__(
        self,
        person: str,
        random: Random,
        *,
        piece_bytes: int = 48 << 10,
        present: Callable[[], Iterable[str]] = lambda: (),
    ) -> None:
        self.person = person
        self.piece_bytes = piece_bytes
        self.groups: dict[str, KnownConversation] = {}
        self.out: deque[LobbyWord] = deque()
        self.invitations: list[GroupInfo] = []
        self.changed: set[str] = set()
        """Conversations that have changed, for programs that show or keep them."""
        self.state = JoiningState.INITIAL
        self._random = random
        self._present = present
        self._to_say: set[str] = set()
        self._say_at: float | None = None
        self._period_at = 0.0
        self.ignored = 0

    # Wishes of the application

    def enter(self, now: float, *, again: bool = False) -> None:
        """This member is on the network. ``again``: it was cut off for a moment, so refused conversations stay so."""
        self._go("enter")
        for group in [group for group in self.groups.values() if group.standing == REFUSED and not again]:
            group.standing = NEW
            self.invitations.append(group.info())
        self.out.append(Advertise(self.person))
        self._period_at = now + PERIOD_S * (0.75 + 0.5 * self._random.random())
        self._say_all(now)
        self._go("done")

    def create(self, gid: str, description: str, since: float, now: float) -> None:
        """Create a conversation; if another member created one under this name, join that one."""
        if gid in self.groups:
            self.join(gid, now)
            return
        self._go("wish to create")
        if len(self.groups) >= GROUPS_MAX and not self._forget_one():
            self._go("done")
            raise Overflow(f"this person is in {GROUPS_MAX:,} conversations: leave some before you create {gid!r}")
        self.groups[gid] = KnownConversation(gid, description, since, JOINED)
        self._set_own(gid, here=True)
        self.out.append(Groups([self.groups[gid].info()]))
        self._say(gid, now)
        self._go("done")

    def join(self, gid: str, now: float) -> None:
        group = self._known(gid)
        row = group.rows.get(self.person)
        if group.standing == JOINED and row is not None and row.here:
            return
        self._go("wish to join")
        self._join(group)
        self._say(gid, now)
        self._go("done")

    def _join(self, group: KnownConversation) -> None:
        group.standing, group.invite = JOINED, False
        row = self._set_own(group.gid, here=True)
        self.out.append(Join(group.gid, self.person, row.counter))

    def refuse(self, gid: str) -> None:
        """Refuse a conversation: it is not reported again until this member's next advertisement."""
        group = self._known(gid)
        if group.standing == JOINED:
            raise BadInput(f"this person is in {gid!r}: leave it, then it is not reported again either")
        row = group.rows.get(self.person)
        if row is not None and row.here:  # others remember an earlier life, which was in
            self._go("wish to leave")
            self._leave(group)
            self._go("done")
        group.standing, group.invite = REFUSED, False
        self.changed.add(gid)

    def leave(self, gid: str, now: float) -> None:
        group = self._known(gid)
        if group.standing != JOINED:
            return
        self._go("wish to leave")
        self._leave(group)
        self._say(gid, now)
        self._go("done")

    def _leave(self, group: KnownConversation) -> None:
        group.standing = REFUSED
        row = self._set_own(group.gid, here=False)
        self.out.append(Leave(group.gid, self.person, row.counter))

    def _known(self, gid: str) -> KnownConversation:
        group = self.groups.get(gid)
        if group is None:
            raise BadInput(f"there is no conversation {gid!r} that this member knows of: create it, or wait for a list")
        return group

    def _set_own(self, gid: str, *, here: bool) -> Row:
        group = self.groups[gid]
        known = group.rows.get(self.person)
        counter = min(known.counter + 1, COUNTER_MAX) if known is not None else 1  # no member can decode a greater one
        row = Row(self.person, counter, here)
        group.set_own(row)
        self.changed.add(gid)
        return row

    # Words of others

    def heard(self, sender: int, word: LobbyWord, now: float) -> None:
        if isinstance(word, Advertise):
            self._go("advertisement")
            self._say_all(now)
        elif isinstance(word, Groups):
            self._go("groups")
            told = Counter(one.teller for one in self.groups.values() if one.standing != JOINED)
            for info in word.groups:
                self._receive(sender, info, now, told)
        elif isinstance(word, Join):
            self._go("join")
            self._update(Row(word.person, word.counter, True), word.gid, now)
        else:
            self._go("leave")
            self._update(Row(word.person, word.counter, False), word.gid, now)
        if self.state != JoiningState.INITIAL:
            self._go("done")

    def _receive(self, teller: int, info: GroupInfo, now: float, told: Counter[int]) -> None:
        """``told``: how many conversations, of those that this member has not joined, it knows from whom."""
        if not 0 <= info.since < CLOCK_MAX_S:  # NaN, too: it could not be decided whose description is older
            self.ignored += 1
            return
        group = self.groups.get(info.gid)
        if group is None:
            if told[teller] >= TOLD_MAX or (len(self.groups) >= GROUPS_MAX and not self._make_room(teller, told)):
                self.ignored += 1
                return
            told[teller] += 1
            group = self.groups[info.gid] = KnownConversation(info.gid, info.description, info.since, NEW, teller)
            self.changed.add(info.gid)
        claimed = False
        own, present = group.rows.get(self.person), self._who_is_present(group, len(info.rows))
        is_out = group.standing == REFUSED or (group.standing == NEW and own is not None and not own.here)
        for row in info.rows:
            if group.merge(row, present):
                self.changed.add(info.gid)
                claimed = claimed or (row.person == self.person and row.here)
        if (info.since, info.description) < (group.since, group.description):
            group.since, group.description = info.since, info.description
            self.changed.add(info.gid)
        self._look_at_own(group)
        if claimed and is_out:
            self._settle("claimed", JoiningState.SEND_LEAVE)
            standing = group.standing
            self._leave(group)
            group.standing = standing  # it may be asked again whether it wants to join
        if group.invite:
            group.invite = False
            self.invitations.append(group.info())
        if group.beyond(info):
            self._say(info.gid, now)
        elif len(info.rows) == info.total:
            self._to_say.discard(info.gid)  # the word was sent

    def _make_room(self, teller: int, told: Counter[int]) -> bool:
        """Forget a conversation of the member that told of most, if it told of more than this one."""
        most = max(told, key=lambda one: told[one])
        if told[most] <= told[teller] + 1 or not self._forget_one(most):
            return False
        told[most] -= 1
        return True

    def _forget_one(self, teller: int | None = None) -> bool:
        """Forget the latest conversation, of this teller or of all, that the application has not decided on; else one
        that it refused or left."""
        for standing in (NEW, REFUSED):
            for gid in reversed(self.groups):
                group = self.groups[gid]
                if group.standing == standing and teller in (None, group.teller):
                    del self.groups[gid]
                    self._to_say.discard(gid)
                    self.changed.add(gid)
                    return True
        return False

    def _update(self, row: Row, gid: str, now: float) -> None:
        group = self.groups.get(gid)
        if group is not None and group.merge(row, self._who_is_present(group, 1)):
            self.changed.add(gid)
            self._look_at_own(group)

    def _who_is_present(self, group: KnownConversation, count: int) -> Collection[str]:
        """The persons on the network; nobody, if so many rows fit the table of this conversation anyway."""
        return {self.person, *self._present()} if len(group.rows) + count > MEMBERS_MAX else ()

    def _look_at_own(self, group: KnownConversation) -> None:
        """A member believes that this person left, or an earlier life of it did: this person is in, and says so."""
        row = group.rows.get(self.person)
        if group.standing == JOINED and (row is None or not row.here):
            self._settle("expelled", JoiningState.SEND_JOIN)
            self._join(group)

    def _settle(self, what: str, state: JoiningState) -> None:
        """What others have of this person is wrong. One list may have that of several conversations."""
        if self.state in (JoiningState.SEND_JOIN, JoiningState.SEND_LEAVE):
            self.state = state
        else:
            self._go(what)

    # Time

    def newcomer(self, now: float) -> None:
        """A new member is there: tell it the conversations, if no other member does."""
        self._say_all(now)

    def _say_all(self, now: float) -> None:
        self._to_say |= self.groups.keys()
        self._say_by(now)

    def _say(self, gid: str, now: float) -> None:
        self._to_say.add(gid)
        self._say_by(now)

    def _say_by(self, now: float) -> None:
        if self._say_at is None and self._to_say:
            self._say_at = now + BACK_OFF_S * self._random.random()

    def tick(self, now: float) -> None:
        if now >= self._period_at:
            self._period_at = now + PERIOD_S * (0.75 + 0.5 * self._random.random())
            self._say_all(now)
        if self._say_at is not None and now >= self._say_at:
            self._say_at = None
            said, self._to_say = sorted(self._to_say), set()
            self._send([self.groups[gid].info() for gid in said if gid in self.groups])

    @property
    def due_at(self) -> float:
        return self._period_at if self._say_at is None else min(self._period_at, self._say_at)

    def _send(self, infos: list[GroupInfo]) -> None:
        """Send conversations in as many words as needed; one of very many members in several, each with some of
        them."""
        word: list[GroupInfo] = []
        size = OVERHEAD_BYTES
        for info in infos:
            for part in self._parts(info):
                weight = len(encode(part))
                if word and size + weight > self.piece_bytes:
                    self.out.append(Groups(word))
                    word, size = [], OVERHEAD_BYTES
                word.append(part)
                size += weight
        if word:
            self.out.append(Groups(word))

    def _parts(self, info: GroupInfo) -> list[GroupInfo]:
        if len(encode(info)) <= self.piece_bytes - OVERHEAD_BYTES or len(info.rows) < 2:
            return [info]
        half = len(info.rows) // 2
        rows = (info.rows[:half], info.rows[half:])
        return [part for some in rows for part in self._parts(msgspec.structs.replace(info, rows=some))]

    def _go(self, what: str) -> None:
        self.state = TRANSITIONS[(self.state, what)]

    def restore(self, infos: list[GroupInfo]) -> None:
        """Restore conversations of an earlier life of this person. It is a member where its own row says so."""
        for info in infos[:GROUPS_MAX]:
            group = self.groups[info.gid] = KnownConversation(info.gid, info.description, info.since, NEW)
            present = self._who_is_present(group, len(info.rows))
            for row in info.rows:
                group.merge(row, present)
            own = group.rows.get(self.person)
            if own is not None:
                group.standing = JOINED if own.here else REFUSED
                group.invite = False

    def stats(self) -> dict[str, int]:
        return {"groups": len(self.groups), "ignored": self.ignored}

    def validate(self) -> None:
        assert self.state == JoiningState.INITIAL and len(self.groups) <= GROUPS_MAX
        for group in self.groups.values():
            assert len(group.rows) <= MEMBERS_MAX
            own = group.rows.get(self.person)
            if group.standing == JOINED:
                assert own is not None and own.here, "a member of a room says so"


def _news(row: Row, known: Row) -> bool:
    """True if a row is later than the known one. Of two with one counter, made independently, the one that is in
    counts."""
    return (row.counter, row.here) > (known.counter, known.here)
