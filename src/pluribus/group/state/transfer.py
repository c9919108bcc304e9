"""State transfer to joiners, exactly at a point of what a group delivers, without stopping the group.

Theory of operation
-------------------
The state of a group is what its members make of the messages that they have read. Delivered messages wait in an inbox
until the application reads them, so the application's state lags behind, and only its reader knows how far it is.
Therefore everything that concerns the state stands *in line*: view changes, snapshots and restored states are marks in
the inbox, between the frames, and take effect when the reader comes to them (``Mark``).

A *point* is the beginning of a view of the group, named by the view's stamp. Members that pass into a view together
have delivered the same, so at that point they have the same state. A snapshot may be taken later in the view: then it
says which messages of the view it holds already (``seen``).

*Joining.* A member without the state holds back all messages from its first view on. It asks all members how good their
state is (``Need``, ``Have``), chooses the best, and pulls a snapshot from that member (``Want``, ``Chunk``). The
provider takes the snapshot when its reader has passed the point that the joiner asked for. The joiner finds the
snapshot's point among the marks that it holds, drops the messages before it and those listed as seen, and goes on from
there: no message is missed, none is applied twice. If the provider dies or leaves, the view changes, and the joiner
asks again; the held messages are still good, because the next snapshot has a later point.

*Ranks* say whose state is best, the same everywhere in a view:

- SURE: the member came directly from the view before, with the state. No member can know more.
- UNSURE: the member has a state, but was cut off (ordered groups), or began by itself and nothing has happened since
  (other groups). Such members compare: the same chain of primaries, how far they came, how long they have waited. The
  one that came farthest is followed, also by members that have waited through primaries that it missed: the messages
  that those hold would leave a gap.
- NONE: the member has no state. If no member has one, the eldest counts as the first member; its state is the group's
  from the present view on.

In *ordered* groups (total, safe) a member that comes back from outside the primary is UNSURE, and takes another's state
if that has more; nothing happens outside a primary. In other groups both sides of a partition live on, and a merge
changes neither state (only new members get one).

Promises: a member applies the messages of the group in one piece from the point of the state that it was given, or has
the first state. Assumes agreed views with a common cut, one reader a group, and that a state follows from the messages.

Live: everything asked for is asked for again until it is answered or the view changes. A provider whose application
does not read is left for another after ``PATIENCE_S``.

Bounded: what is held is taken from the windows up to ``HELD_BYTES_MAX``, so that senders go on meanwhile, and beyond
that stays in them, so that senders wait; snapshots by ``SNAPSHOTS_MAX`` and ``STATE_BYTES_MAX`` (``serving``).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ...core.errors import TooLarge
from ...core.frame import Frame, Header
from ...core.ids import ALL, MemberId
from ...core.ports import Timer
from .chunks import Pull
from .line import HeldFrame, Mark, Seens, ViewChange
from .serving import Serving, State
from .words import Chunk, Have, Need, Over, Rank, Want

log = logging.getLogger(__name__)

PLAIN, NONE, UNSURE, SURE = range(4)
FAR = 1 << 62
TICK_S = 0.05
PATIENCE_S = 5.0
HELD_BYTES_MAX = 64 << 20
EARLY_MAX = 256


class Transfer:
    """State transfer of one group in one member. ``changed``, ``keeps`` and ``heard`` are called by the stack in the
    order of deliveries, what ``Mark`` runs and ``passed`` by the reader in the order of the inbox."""

    def __init__(
        self,
        me: int,
        state: State,
        inbox: deque[Frame],
        *,
        ordered: bool,
        chunk_bytes: int,
        buffer_bytes: int,
        wake: Callable[[], None],
        consumed: Callable[[Frame], None],
        say: Callable[[int, Header], None],
        run: Callable[[Callable[[], None]], None],
        after: Callable[[float, Callable[[], None]], Timer],
        now: Callable[[], float],
    ) -> None:
        self._me = me
        self._state = state
        self._inbox = inbox
        self._ordered = ordered
        self._chunk_bytes = chunk_bytes
        self._buffer_bytes = buffer_bytes
        self._wake = wake
        self._consumed = consumed
        self._say = say
        self._after = after
        self._now = now
        self.has = False
        """Whether this member will have the state when its reader has come to the end of the inbox."""
        self.holding = True
        self.away = True
        self.founded = False
        """Whether this member was the first, so that its own state is the group's."""
        self.on_mark: Callable[[ViewChange], None] = lambda change: None
        """The reader has come to a new view."""
        self.on_older: Callable[[ViewChange], None] = lambda change: None
        """Called when the reader comes to the point where an ordered group goes on with the state of an older primary,
        or of another chain: members with more are gone, or were left behind by a forced primary."""
        self.on_restored: Callable[[ViewChange, Seens], None] = lambda change, seens: None
        """The reader has restored a state: everything before a view, and these messages of it."""
        self._lived = False
        self._version: tuple[int, int, int, int] = (0, 0, 0, 0)
        self._version_view = (0, 0)
        self._since = 0
        self._count = 0
        self._view = ViewChange(0, (), primary=False, continues=False)
        self._rank: Rank = (NONE,)
        self._answers: dict[int, Rank] = {}
        self._avoid: set[int] = set()
        self._early: dict[int, int] = {}
        self._hold: deque[Frame] = deque()
        self._held_bytes = 0
        self._ahead: Seens | None = None
        self._pull: Pull | None = None
        self._pulls = 0
        self._tick: Timer | None = None
        self.serving = Serving(me, state, inbox, chunk_bytes, wake, say, run, now)
        self.restored = 0
        self.closed = False

    @property
    def ready(self) -> bool:
        """The state is here, or the mark that restores it stands in the inbox."""
        return self.has and not self.holding

    # Views

    def changed(self, change: ViewChange) -> None:
        """The group has a new view; what is delivered from now on is of this view."""
        if self._me not in change.members:
            self._stay_out(change)
            return
        change.continues = change.continues and not self.away
        if self.ready:
            self._version = (*self._version[:3], self._count)
        self._view = change
        self._ahead = None
        self._answers.clear()
        self._avoid.clear()
        if self._ordered and not change.primary:
            self._suspend(change)
            return
        self.away = False
        if self._ordered:
            self._enter_ordered(change)
        else:
            self._enter(change)
        self._count = 0
        self._answer_early()
        if self.holding:
            self._go_on_asking()

    def _stay_out(self, change: ViewChange) -> None:
        """This member is not in the group yet, or any more: a group that is left and joined again at once may still
        show the former membership. Messages until this member is back are not for it."""
        self.away = True
        self._pull = None
        self._drop_held()
        self._view = change
        self._ahead = None
        if not self._ordered:  # else ranks will tell what its state is worth
            self.has = self._lived = False
            self.holding = True

    def _suspend(self, change: ViewChange) -> None:
        """Outside a primary nothing is delivered. Held messages are dropped: others have gone on, or will."""
        self.away = True
        self._pull = None
        self._drop_held()
        self._put(self._mark(change))

    def _enter_ordered(self, change: ViewChange) -> None:
        if change.continues and self.ready:
            self._rank = (SURE,)
            self._version = (change.lineage, change.epoch, change.point, 0)
            self._version_view = change.view
            self._put(self._mark(change))
            return
        if not change.continues or not self.holding:
            self._drop_held()
            self._pull = None
            self.holding = True
            self._since = change.epoch
        self._hold.append(self._mark(change))
        if self.has:
            lineage, *version = self._version
            # A chain that was forced is a new one; it goes on from the last primary that its members come from.
            same = lineage == change.lineage or self._version_view == change.after
            self._rank = (UNSURE, int(same), *version, FAR - self._since, lineage)
        else:
            self._rank = (NONE,)

    def _enter(self, change: ViewChange) -> None:
        if self.ready and (self._lived or self.serving.taken):
            self._rank = (SURE,)
            self._put(self._mark(change))
            return
        self._rank = (UNSURE,) if self.has else (NONE,)
        self.holding = True
        self._hold.append(self._mark(change))

    def _mark(self, change: ViewChange) -> Mark:
        return Mark.of(lambda: self._passed_view(change), change)

    # What arrives

    def keeps(self, frame: Frame) -> bool:
        """Whether a frame is held back from the inbox."""
        if frame.to == ALL:
            self._count += frame.count
            self._lived = self._lived or self.ready
        if not self.holding:
            return self._ahead is not None and self._was_ahead(frame, self._ahead)
        paid = self._held_bytes + frame.size <= HELD_BYTES_MAX
        if paid:
            self._held_bytes += frame.size
            self._consumed(frame)
        self._hold.append(HeldFrame.of(frame, paid=paid))
        return True

    def _was_ahead(self, frame: Frame, ahead: Seens) -> bool:
        """The snapshot may hold messages of this view that reach us only now; the state has them."""
        held = HeldFrame.of(frame, paid=False)
        unseen = [held] if frame.to != ALL else ahead.unseen(held)
        if unseen == [held]:
            return False
        self._consumed(frame)
        self._inbox.extend(unseen)
        self._wake()
        return True

    def _drop_held(self) -> None:
        for frame in self._hold:
            if type(frame) is HeldFrame and not frame.paid:
                self._consumed(frame)
        self._hold.clear()
        self._held_bytes = 0

    def _put(self, frame: Frame) -> None:
        self._inbox.append(frame)
        self._wake()

    def close(self) -> None:
        """The group is left."""
        self.closed = True
        self._drop_held()
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self._pull is not None:
            self._say(self._pull.provider, Over(self._pull.number))
            self._pull = None

    # Asking

    def heard(self, sender: int, word: Any) -> None:
        match word:
            case Need(point):
                if point == self._view.point and not self.away:
                    self._say(sender, Have(point, self._rank))
                elif point > self._view.point and len(self._early) < EARLY_MAX:
                    self._early[sender] = point
            case Have(point, rank):
                if point == self._view.point and sender in self._view.members and self.holding:
                    self._answers[sender] = rank
                    self._decide()
            case Want():
                self.serving.wanted(sender, word, self._view.members, ready=self.ready)
            case Chunk():
                self._took(sender, word)
            case Over(transfer):
                self.serving.over(sender, transfer, self._view.members)
                if self._pull is not None and (sender, transfer) == (self._pull.provider, self._pull.number):
                    self._give_up(self._pull)

    def _answer_early(self) -> None:
        early, self._early = self._early, {}
        for sender, point in early.items():
            self.heard(sender, Need(point))

    def _go_on_asking(self) -> None:
        pull = self._pull
        if pull is not None and pull.provider not in self._view.members:
            self._pull = pull = None
        if pull is not None:
            self._finish_pull()
        else:
            self._ask()
            self._decide()
        self._watch()

    def _ask(self) -> None:
        for member in self._view.members:
            if member != self._me and member not in self._answers:
                self._say(member, Need(self._view.point))

    def _watch(self) -> None:
        if self._tick is None and self.holding and not self.closed:
            self._tick = self._after(TICK_S, self._ticked)

    def _ticked(self) -> None:
        self._tick = None
        if not self.holding or self.away or self.closed:
            return
        pull = self._pull
        if pull is None:
            self._ask()
            self._decide()
        else:
            for first, stop in pull.overdue(self._now()):
                self._say(pull.provider, Want(self._view.point, pull.number, first, stop))
            if not pull.started and self._now() - pull.begun_at > PATIENCE_S:
                self._give_up(pull)
        self._watch()

    def _give_up(self, pull: Pull) -> None:
        self._pull = None
        self._avoid.add(pull.provider)
        if self._avoid >= self._answers.keys():
            self._avoid.clear()  # and again with the next tick: what fails at once would fail thousands of times
        else:
            self._ask()
            self._decide()

    def _decide(self) -> None:
        """Choose whose state to take: of a SURE member as soon as one answers; else of the best, when all have
        answered."""
        if self._pull is not None or not self.holding or self.away:
            return
        ranks = {self._me: self._rank, **self._answers}
        members = self._view.members
        sure = [m for m in members if ranks.get(m, (NONE,))[0] == SURE and m not in self._avoid]
        if sure:
            self._begin_pull(sure[0])
            return
        if len(ranks) < len(members):
            return
        best = max(members, key=lambda member: (ranks[member], -members.index(member)))
        equal = self._ordered and self._rank[0] == UNSURE and self._rank == ranks[best]
        if best == self._me or equal:
            self._resolve()
        elif ranks[best][0] != SURE:  # else everybody who is sure is being avoided: ask again later
            self._begin_pull(best)

    def _resolve(self) -> None:
        """Nobody has more: what this member has is the state of the group."""
        view = self._view
        if not self.has:
            self.founded = True
            self._forget_lives_before()
        elif self._ordered and (self._version[0], self._version_view) != (view.lineage, view.after):
            self._inbox.append(Mark.of(lambda: self.on_older(view)))
            self._forget_lives_before()
        self._have(self._hold)

    def _forget_lives_before(self) -> None:
        """Forget messages held in earlier views: they belong to a later state, whose members are gone. A group that
        begins anew, or with an older state, begins with this view; else there would be a gap before it."""
        last = max(at for at, frame in enumerate(self._hold) if type(frame) is Mark)
        before, after = list(self._hold)[:last], list(self._hold)[last:]
        for frame in before:
            if type(frame) is HeldFrame:
                self._drop(frame)
        self._hold = deque([*(frame for frame in before if type(frame) is Mark), *after])

    def _have(self, rest: Iterable[Frame]) -> None:
        view = self._view
        self.has = True
        self.holding = False
        self._version = (view.lineage, view.epoch, view.point, self._count)
        self._version_view = view.view
        self._inbox.extend(rest)
        self._hold.clear()
        self._held_bytes = 0
        self._wake()

    # Pulling

    def _begin_pull(self, provider: int) -> None:
        self._pulls += 1
        self._pull = Pull(provider, self._pulls, self._chunk_bytes, self._buffer_bytes, self._now())
        self._pull_more()

    def _pull_more(self) -> None:
        pull = self._pull
        if pull is not None:
            for first, stop in pull.wants(self._now()):
                self._say(pull.provider, Want(self._view.point, pull.number, first, stop))

    def _took(self, sender: int, chunk: Chunk) -> None:
        pull = self._pull
        if pull is None or (sender, chunk.transfer) != (pull.provider, pull.number):
            return
        if not pull.same(chunk.snapshot, chunk.point):
            self._say(sender, Over(pull.number))
            self._pull = None
            self._begin_pull(sender)
            return
        try:
            fresh = pull.take(chunk.index, chunk.data, self._now(), last=chunk.last)
        except TooLarge as error:
            log.error("%s cannot take the state of %s: %s", MemberId(self._me), MemberId(sender), error)
            self._give_up(pull)
            return
        if fresh and chunk.index == 0:
            pull.point, pull.seen = chunk.point, chunk.seen
        if pull.done:
            self._finish_pull()
        else:
            self._pull_more()

    def _finish_pull(self) -> None:
        """The snapshot is here. Its point is one of the marks that this member holds, or will be soon: its provider may
        have entered a view before us."""
        pull = self._pull
        if pull is None or not pull.done or pull.point > self._view.point:
            return
        passed = [frame.change for frame in self._hold if type(frame) is Mark and frame.change.point <= pull.point]
        rest = self._after_point(pull.point, Seens(pull.seen))
        if rest is None:  # it was taken in a view of which we were no part
            self._give_up(pull)
            return
        self._pull = None
        self._say(pull.provider, Over(pull.number))
        state, seen = pull.state(), pull.seen
        self._inbox.append(Mark.of(lambda: self._restore(state, Seens(seen), passed)))
        self._lived = True
        self._ahead = Seens(seen) if pull.point == self._view.point else None
        self._have(rest)

    def _after_point(self, point: int, seens: Seens) -> list[Frame] | None:
        """The held frames that come after a snapshot; None if its point is not among them."""
        marks = [at for at, frame in enumerate(self._hold) if type(frame) is Mark and frame.change.point == point]
        if not marks:
            return None
        rest: list[Frame] = []
        in_view = True
        for at, frame in enumerate(self._hold):
            if type(frame) is not HeldFrame:
                in_view = in_view and at <= marks[0]
                if at > marks[0]:
                    rest.append(frame)
            elif frame.to != ALL:
                rest.append(frame)
            elif at < marks[0]:
                self._drop(frame)
            else:
                unseen = seens.unseen(frame) if in_view else [frame]
                if unseen != [frame]:
                    self._drop(frame)
                rest += unseen
        return rest

    def _drop(self, frame: HeldFrame) -> None:
        if not frame.paid:
            self._consumed(frame)

    # The reader's line

    def passed(self, frame: Frame) -> bool:
        """The reader took a frame out of the inbox; true if it was given back to its sender's window before."""
        if frame.to == ALL:
            self.serving.seens.add(frame)
        return type(frame) is HeldFrame and frame.paid

    def _passed_view(self, change: ViewChange) -> None:
        self.on_mark(change)
        self.serving.reader_at(change.point, Seens())

    def _restore(self, state: bytes, seens: Seens, passed: list[ViewChange]) -> None:
        """Restore the state; with it the reader passes the held views up to the state's own."""
        self._state.restore(state)
        self.restored += 1
        for change in passed:
            self.on_mark(change)
        self.on_restored(passed[-1], seens)
        self.serving.reader_at(passed[-1].point, seens)

    def validate(self) -> None:
        assert self.holding or not self._hold
        assert self.holding or self._pull is None
        assert self.has or self.holding
        self.serving.validate()
        assert self._held_bytes <= HELD_BYTES_MAX
