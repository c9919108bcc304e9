"""Member synchronisation: a member that comes back gets the messages that it missed. Source: M2MC, chapter 6 (MSP).

Theory of operation
-------------------
A member *requests*: it sends the identities that it has, as intervals. Every
member that has more keeps a *repository* of the messages that the asker lacks and counts down from a random number
(figure 6.1, ``TRANSITIONS``); the first to reach zero answers, in pieces. The others receive the answer too, remove its
messages from their repositories, and count again: mostly one member answers. Every member uses every answer. A member
that lacks identities of a request asks in its turn, after a random while; so two halves that were apart both get the
messages of the other. (In the thesis a request carries all messages of the asker instead; that does not scale, and its
own answer then sends them a second time.)

When to ask: at the beginning, three times; when a new member is there; when a parent or a gap is known to be missing;
when another member's request shows more. Each request is delayed by a random while, and cancelled if the missing
messages came meanwhile; the second and third of the beginning also if a member with the same messages asked. Requests
that bring nothing are repeated less and less often. A request of a member that lacks nothing is a *summary*, sent once
in a while by one of the members with the same messages: so every lost message, the last included, is found in the end.

The newest request of a member wins: an older one that comes late is discarded, one that comes twice starts nothing. An
answer that overtakes its request is remembered for a moment, so that the repository that the request starts is without
it; it starts none itself, which would never count down (the thesis does that, in its state SyncRespRecv).

A member that keeps identities alone never answers for bodies that it lacks, and names them in its requests (``lost``),
so that no member waits for it. Its silence does not keep others from answering.

Promise: among members that reach each other long enough, and keep bodies, all have the same messages in the end.
Assumes that some datagrams arrive. Live, because summaries are sent for ever.

Bounds: ``ASKERS_MAX`` repositories, each at most the history; an asker of very many parts loses its own.
``WANTED_MAX`` intervals to ask for; words of ``piece_bytes`` and a few at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum, auto
from itertools import pairwise

from ..core.ids import MessageId
from ..core.intervals import Intervals, Span
from ..core.ports import Random
from .history import Delivered, History
from .typing import Typing
from .words import (
    POSITION_MAX,
    Answer,
    Entry,
    Request,
    RoomWord,
    Said,
    Writing,
    add_identity,
    encode,
    identities_of,
    minus,
    packed,
    unpacked,
)

BACK_OFF_S = 0.3
"""Counting begins at a random part of this."""
STEP_S = 0.005
"""Between two turns of a member that answers in pieces; short, so that it goes on before others begin."""
PIECES_PER_TURN = 8
SOON_S = 0.5
"""A delay before asking: a missing message may only be late."""
RETRY_S = 2.0
RETRY_S_MAX = 60.0
SUMMARY_S = 20.0
SUMMARY_S_MAX = 300.0
FIRST_ASKS_S = (0.0, 1.0, 4.0)
VAIN_MAX = 8
"""Requests that brought nothing, after which missing messages are given up, until a summary offers them."""
ASKERS_MAX = 1_024
WANTED_MAX = 65_536
"""Intervals of messages that others have and this member asks for; further ones are offered again by summaries."""
EARLY_ANSWERS_MAX = 64
OVERHEAD_BYTES = 96
WRITER_BYTES, SPAN_BYTES = 10, 20
"""What a writer and an interval take in a word, at most about."""
EVERYBODY = (1 << 63) - 1


class SynchronisingState(StrEnum):
    """The states of figure 6.1. All but ``COUNTING`` pass at once; that one is kept by asker."""

    INITIAL = auto()
    SEND_REQUEST = auto()
    REQUEST_RECEIVED = auto()
    COUNTING = auto()
    UPDATE_REPOSITORY = auto()
    SEND_ANSWER = auto()
    DELIVER = auto()
    ANSWER_RECEIVED = auto()


TRANSITIONS: dict[tuple[SynchronisingState, str], SynchronisingState] = {
    (SynchronisingState.INITIAL, "wish"): SynchronisingState.SEND_REQUEST,
    (SynchronisingState.SEND_REQUEST, "sent"): SynchronisingState.INITIAL,
    (SynchronisingState.INITIAL, "request"): SynchronisingState.REQUEST_RECEIVED,
    (SynchronisingState.REQUEST_RECEIVED, "newest"): SynchronisingState.COUNTING,
    (SynchronisingState.REQUEST_RECEIVED, "nothing to give"): SynchronisingState.INITIAL,
    (SynchronisingState.REQUEST_RECEIVED, "older"): SynchronisingState.INITIAL,
    (SynchronisingState.REQUEST_RECEIVED, "older than counted"): SynchronisingState.COUNTING,
    (SynchronisingState.COUNTING, "request"): SynchronisingState.REQUEST_RECEIVED,
    (SynchronisingState.COUNTING, "answer"): SynchronisingState.UPDATE_REPOSITORY,
    (SynchronisingState.UPDATE_REPOSITORY, "left"): SynchronisingState.COUNTING,
    (SynchronisingState.UPDATE_REPOSITORY, "empty"): SynchronisingState.INITIAL,
    (SynchronisingState.COUNTING, "zero"): SynchronisingState.SEND_ANSWER,
    (SynchronisingState.SEND_ANSWER, "left"): SynchronisingState.COUNTING,
    (SynchronisingState.SEND_ANSWER, "sent"): SynchronisingState.INITIAL,
    (SynchronisingState.INITIAL, "own answer"): SynchronisingState.DELIVER,
    (SynchronisingState.INITIAL, "answer"): SynchronisingState.ANSWER_RECEIVED,
    (SynchronisingState.DELIVER, "delivered"): SynchronisingState.INITIAL,
    (SynchronisingState.ANSWER_RECEIVED, "delivered"): SynchronisingState.INITIAL,
}

Asked = tuple[int, int]
"""Asker and part."""


def through(state: SynchronisingState, *events: str) -> SynchronisingState:
    """The state after these events; ``KeyError`` for a step that is not in the figure."""
    for event in events:
        state = TRANSITIONS[(state, event)]
    return state


class Repository:
    """The messages that an asker lacks and this member can give, and the time when it does (``MIR`` in the thesis)."""

    __slots__ = ("due_at", "left", "number", "state", "turn")

    def __init__(self, number: int, left: dict[int, Intervals], due_at: float) -> None:
        self.number = number
        self.left = left
        self.due_at = due_at
        self.turn = 1
        """Pieces that may be sent at once: one at first, so that two members that begin together soon notice each
        other."""
        self.state = SynchronisingState.COUNTING

    def go(self, what: str) -> None:
        self.state = through(self.state, what)


class Synchronising:
    """One conversation at one member. ``heard`` and ``tick`` put words into ``out`` and messages into ``delivered``."""

    def __init__(self, me: int, history: History, random: Random, *, piece_bytes: int = 48 << 10) -> None:
        self.me = me
        self.history = history
        self.piece_bytes = piece_bytes
        self.out: deque[RoomWord] = deque()
        self.delivered: list[Delivered] = []
        self.issued = 0
        """Numbers of this member's messages that were used: a message in its name with a higher number is forged."""
        self.fresh: list[Entry] = []
        """New messages, for the store."""
        self.typing = Typing()
        self._random = random
        self.number = 0
        """The number of the last request. A member that opens the room again goes on from it, or others would take its
        requests for old ones."""
        self._latest: dict[Asked, int] = {}
        self._repositories: dict[Asked, Repository] = {}
        self._early: dict[tuple[int, int, int], dict[int, Intervals]] = {}
        self._alike: dict[int, tuple[int, int]] = {}
        """By asker: the number of its request and the next part, if this member has the same in all parts before."""
        self._wanted: dict[int, Intervals] = {}
        """Identities that others have, by their words."""
        self._ask_at: float | None = None
        self._first = deque(FIRST_ASKS_S)
        self._vain = 0
        self._hopeless: dict[int, Intervals] = {}
        self._confirm = False
        """An answer came: ask once more when no more come, because its sender may have fallen silent."""
        self._summary_s = SUMMARY_S
        self._summary_at = 0.0
        self.requests = 0
        self.answers = 0
        self.answered = 0
        """Messages in answers of this member."""
        self.suppressed = 0
        """Messages that others gave before this member did."""
        self.forged = 0

    # Calls of the application

    def begin(self, now: float) -> None:
        """This member is in the conversation, again or for the first time."""
        self._first = deque(FIRST_ASKS_S)
        self._vain = 0
        self._summary_at = now + self._jitter(self._summary_s)
        self._ask_by(now)

    def renamed(self, me: int) -> None:
        """This member has another identity from now on; its messages from before are those of another writer."""
        self.me, self.issued = me, 0

    def say(self, entry: Entry, now: float) -> None:
        """A message of this member."""
        self.issued = max(self.issued, entry.id[1] + 1)
        self._take([entry], now)
        self.out.append(Said([entry]))
        self.typing.said()
        self._summary_by(now)

    def write(self, going: bool, now: float) -> None:
        """This member is writing, or has stopped."""
        word = self.typing.write(going, now)
        if word is not None:
            self.out.append(word)

    def newcomer(self, now: float) -> None:
        """A new member is there: it may have messages that this member lacks, or the other way round."""
        self._vain = 0
        self._hopeless.clear()
        self._summary_s = SUMMARY_S
        self._summary_at = min(self._summary_at, now + BACK_OFF_S * (1 + self._random.random()))

    def _summary_by(self, now: float) -> None:
        """Schedule a summary, because there is news: its last word may be lost."""
        if self._summary_s != SUMMARY_S:
            self._summary_s = SUMMARY_S
            self._summary_at = min(self._summary_at, now + self._jitter(SUMMARY_S))

    # Words of others

    def heard(self, sender: int, word: RoomWord, now: float) -> None:
        if sender == self.me:
            return
        if isinstance(word, Said):
            own = [entry for entry in word.entries if entry.id[0] == sender]
            self.forged += len(word.entries) - len(own)
            self._take(own, now)
            if own:
                self.typing.ended(sender)
                self._summary_by(now)
        elif isinstance(word, Writing):
            self.typing.heard(sender, word.going, now)
            return
        elif isinstance(word, Request):
            self._requested(sender, word, now)
        else:
            self._answered(word, now)
        if self._ask_at is None and not self.history.whole:
            self._ask_by(now + SOON_S * (0.5 + self._random.random()))

    def _take(self, entries: list[Entry], now: float) -> int:
        """Take these messages; returns how many were new."""
        new = 0
        for entry in entries:
            known = entry.id in self.history
            delivered = self.history.add(entry, now)
            if not known and entry.id in self.history:
                new += 1
                self.fresh.append(entry)
            self.delivered += delivered
        return new

    def _requested(self, asker: int, request: Request, now: float) -> None:
        have, lost = unpacked(request.have), unpacked(request.lost)
        asked = (asker, request.part)
        mine = {w: numbers for w, numbers in self.history.have.items() if request.low <= w <= request.high}
        if (request.first, request.last) != (0, POSITION_MAX):
            mine = {w: numbers.between(request.first, request.last) for w, numbers in mine.items()}
        offered = self.history.wanted(minus(minus(have, lost), mine))
        room = WANTED_MAX - sum(map(len, self._wanted.values()))
        for writer, numbers in offered.items():
            if len(numbers) <= room:
                self._wanted.setdefault(writer, Intervals()).update(numbers)
                room -= len(numbers)
        if offered:
            self._vain = 0
            self._hopeless = minus(self._hopeless, offered)
            self._ask_by(now + BACK_OFF_S * self._random.random())
        lacks = minus(minus(mine, self.history.lost), have)
        if not lacks and not offered and not lost:
            self._same_in_part(asker, request, now)
        counting = self._repositories.get(asked)
        state = through(SynchronisingState.INITIAL if counting is None else counting.state, "request")
        if request.number <= self._latest.get(asked, 0):
            through(state, "older" if counting is None else "older than counted")
            return
        if asked not in self._latest and len(self._latest) >= ASKERS_MAX:
            own = [one for one in self._latest if one[0] == asker]
            gone = own[0] if len(own) > ASKERS_MAX // 4 else next(iter(self._latest))
            del self._latest[gone]
            self._repositories.pop(gone, None)
        self._latest.pop(asked, None)
        self._latest[asked] = request.number
        early = self._early.pop((asker, request.number, request.part), None)
        lacks = minus(lacks, early) if early else lacks
        self._repositories.pop(asked, None)
        through(state, "newest" if lacks else "nothing to give")
        if lacks:
            self._repositories[asked] = Repository(request.number, lacks, now + BACK_OFF_S * self._random.random())

    def _same_in_part(self, asker: int, request: Request, now: float) -> None:
        """The asker has what this member has, as far as this word goes; and as a whole, if that is so of all words of
        the request, in turn."""
        so_far = self._alike.pop(asker, None)
        begins = request.part == request.low == 0
        if not begins and so_far != (request.number, request.part):
            return
        if request.high == EVERYBODY:
            self._same(now)
            return
        if len(self._alike) >= ASKERS_MAX:
            del self._alike[next(iter(self._alike))]
        self._alike[asker] = (request.number, request.part + 1)

    def _same(self, now: float) -> None:
        """A member with the same messages has asked, or sent its summary: this member need not."""
        self._summary_s = min(self._summary_s * 1.5, SUMMARY_S_MAX)
        self._summary_at = now + self._jitter(self._summary_s)
        self._first.clear()

    def _answered(self, answer: Answer, now: float) -> None:
        entries = [entry for entry in answer.entries if entry.body is not None]
        true = [entry for entry in entries if entry.id[0] != self.me or entry.id[1] < self.issued]
        self.forged += len(entries) - len(true)
        if self._take(true, now):
            self._vain = 0
            if answer.asker == self.me:
                self._first.clear()
                self._confirm = True
                self._ask_by(now + RETRY_S, put_off=True)  # more is on its way
        asked = (answer.asker, answer.part)
        repository = self._repositories.get(asked)
        if repository is not None and repository.number == answer.number:
            repository.go("answer")
            before = _count(repository.left)
            repository.left = minus(repository.left, identities_of(entries))
            self.suppressed += before - _count(repository.left)
            repository.go("left" if repository.left else "empty")
            repository.due_at = now + BACK_OFF_S * (0.5 + self._random.random())
            repository.turn = 1
            if not repository.left:
                del self._repositories[asked]
            return
        mine = answer.asker == self.me
        through(SynchronisingState.INITIAL, "own answer" if mine else "answer", "delivered")
        if not mine and answer.number > self._latest.get(asked, 0):
            if len(self._early) >= EARLY_ANSWERS_MAX:
                del self._early[next(iter(self._early))]
            early = self._early.setdefault((answer.asker, answer.number, answer.part), {})
            for entry in entries:
                add_identity(early, entry.id)

    # Time

    def tick(self, now: float) -> None:
        self.delivered += self.history.tick(now)
        self.typing.tick(now)
        for asked, repository in list(self._repositories.items()):
            if now >= repository.due_at:
                self._answer(asked, repository, now)
        if self._ask_at is not None and now >= self._ask_at:
            self._ask_at = None
            self._ask(now)
        if now >= self._summary_at:
            self._summary_at = now + self._jitter(self._summary_s)
            self._summary_s = min(self._summary_s * 1.5, SUMMARY_S_MAX)
            self._request()

    @property
    def due_at(self) -> float:
        """The time when ``tick`` has something to do."""
        times = [self._summary_at, *(repository.due_at for repository in self._repositories.values())]
        if self._ask_at is not None:
            times.append(self._ask_at)
        for due_at in (self.history.due_at, self.typing.due_at):
            if due_at is not None:
                times.append(due_at)
        return min(times)

    def _ask_by(self, at: float, *, put_off: bool = False) -> None:
        if self._ask_at is None or at < self._ask_at or put_off:
            self._ask_at = at

    def _ask(self, now: float) -> None:
        """Ask, if messages are missing, or this member has just begun."""
        missing = minus(self.history.missing(), self._hopeless)
        self._wanted = self.history.wanted(minus(self._wanted, self.history.have))
        if not (missing or self._wanted or self._first or self._confirm):
            self._vain = 0
            return
        self._request()
        self._confirm = False
        if self._first:
            self._first.popleft()
            if self._first:
                self._ask_by(now + self._first[0] * (0.5 + self._random.random()))
                return
        if not missing and not self._wanted:
            return
        self._vain += 1
        if self._vain >= VAIN_MAX:
            self._vain = 0
            self._wanted.clear()
            for writer, numbers in missing.items():
                self._hopeless.setdefault(writer, Intervals()).update(numbers)
        else:
            self._ask_by(now + min(RETRY_S * 2**self._vain, RETRY_S_MAX) * (0.5 + self._random.random()))

    def _request(self) -> None:
        """The identities of this member, in as many words as needed: each covers the writers of one range, or some of
        the numbers of one writer."""
        through(SynchronisingState.INITIAL, "wish", "sent")
        self.number += 1
        self.requests += 1
        have, lost = self.history.have, self.history.lost
        for part, (low, high, first, last) in enumerate(self._parts()):
            about = (packed(have, low, high, first, last), packed(lost, low, high, first, last))
            self.out.append(Request(self.number, part, low, high, *about, first, last))

    def _parts(self) -> Iterator[tuple[int, int, int, int]]:
        """Ranges of writers whose identities fit into one word, each with the range of their numbers. A writer that has
        too many intervals for one word, or as many as are kept, has words of its own."""
        room = self.piece_bytes - OVERHEAD_BYTES
        low = size = 0
        for writer in sorted(self.history.have):
            spans = len(self.history.have[writer]) + len(self.history.lost.get(writer, ()))
            weight = WRITER_BYTES + SPAN_BYTES * spans
            if weight > room or self.history.is_full(writer):
                if low < writer:
                    yield low, writer - 1, 0, POSITION_MAX
                for first, last in self._numbers_of(writer, max(room // (2 * SPAN_BYTES), 1)):
                    yield writer, writer, first, last
                low, size = writer + 1, 0
                continue
            if size and size + weight > room:
                yield low, writer - 1, 0, POSITION_MAX
                low, size = writer, 0
            size += weight
        if low <= EVERYBODY:
            yield low, EVERYBODY, 0, POSITION_MAX

    def _numbers_of(self, writer: int, most: int) -> Iterator[Span]:
        """Ranges of numbers with at most so many intervals each. If no more intervals are kept, they end where further
        messages would be refused."""
        numbers = self.history.have[writer]
        starts = [0, *[first for first, _ in numbers.spans()[most::most]]]
        end = min(numbers.end, POSITION_MAX) if self.history.is_full(writer) else POSITION_MAX
        for start, behind in pairwise([*starts, end + 1]):
            yield start, behind - 1

    def _answer(self, asked: Asked, repository: Repository, now: float) -> None:
        """A few pieces of what is left in the repository."""
        repository.go("zero")
        for _ in range(repository.turn):
            entries = self._piece(repository.left)
            if not entries:
                break
            self.answers += 1
            self.answered += len(entries)
            self.out.append(Answer(asked[0], repository.number, asked[1], entries))
        repository.go("left" if repository.left else "sent")
        repository.turn = PIECES_PER_TURN
        repository.due_at = now + STEP_S
        if not repository.left:
            del self._repositories[asked]

    def _piece(self, left: dict[int, Intervals]) -> list[Entry]:
        """As many of these messages as fit a word, removed from ``left``. Messages forgotten meanwhile are skipped."""
        found: list[Entry] = []
        size = OVERHEAD_BYTES
        for writer in sorted(left):
            taken = Intervals()
            full = False
            for identity in _numbers(writer, left[writer]):
                entry = self.history.get(identity)
                if entry is not None and entry.body is not None:
                    weight = len(encode(entry))
                    if found and size + weight > self.piece_bytes:
                        full = True
                        break
                    size += weight
                    found.append(entry)
                taken.add(identity[1], identity[1])
            rest = Intervals(left[writer].without(taken))
            if rest:
                left[writer] = rest
            else:
                del left[writer]
            if full:
                break
        return found

    def _jitter(self, seconds: float) -> float:
        return seconds * (0.75 + 0.5 * self._random.random())

    def stats(self) -> dict[str, int]:
        return {
            "requests": self.requests,
            "answers": self.answers,
            "answered": self.answered,
            "suppressed": self.suppressed,
            "forged": self.forged,
            "repositories": len(self._repositories),
        }

    def validate(self) -> None:
        assert len(self._repositories) <= len(self._latest) <= ASKERS_MAX and len(self._early) <= EARLY_ANSWERS_MAX
        assert len(self._alike) <= ASKERS_MAX
        for asked, repository in self._repositories.items():
            assert repository.left and repository.state == SynchronisingState.COUNTING, (
                "a member that is counted has something to give"
            )
            assert repository.number == self._latest[asked]
        self.history.validate()
        self.typing.validate()


def _numbers(writer: int, numbers: Intervals) -> Iterator[MessageId]:
    return ((writer, number) for first, last in numbers for number in range(first, last + 1))


def _count(known: dict[int, Intervals]) -> int:
    return sum(numbers.count for numbers in known.values())
