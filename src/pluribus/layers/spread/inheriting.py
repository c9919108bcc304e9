"""When a proxy dies, the next member in the list inherits its streams, asks who holds what, and sends the rest.

Theory of operation
-------------------
A proxy that dies leaves messages that some members have and others lack. Its *heir* is the next living member in the
list. Every member with a stream of the dead proxy tells the heir what it holds, repeatedly until the stream is closed;
so an heir that never heard of the stream hears of it now. The heir asks the others. When every living member has
answered, it knows the first number that nobody holds. That is the *end*: nobody has passed up anything after it,
because streams are passed up in order. The heir fetches messages that it lacks itself, sends every message before the
end that somebody lacks to all, as a proxy would, and closes the stream when all have everything.

If the heir dies, its own heir does the same from the beginning. Nothing is forgotten before everybody has it, so the
next heir finds at least as much. A member that has closed the stream already says so: then everybody has everything
before the end that it was told.

A proxy that was only slow finds its stream closed when it goes on. It opens another stream and sends again every
message that it does not know to be everywhere; receivers recognise duplicates by the numbers of the layer above.
"""

from __future__ import annotations

from typing import Any

from ...core.frame import Frame
from ...stack.layer import Layer
from .handing import STREAMS_MAX
from .lists import Listed, Lists
from .recovering import LOOK_S, Recovering
from .streams import ROOT, Stream, StreamKey
from .words import NUMBERS_PER_WORD_MAX, Asked, Closed, Holding, Missing

ASK_S = 0.2


class Estate:
    """The *estate* of a dead proxy: what its heir knows of one stream."""

    __slots__ = ("answers", "asked_at", "closing", "confirmed", "end", "wanted")

    def __init__(self) -> None:
        self.answers: dict[int, Holding] = {}
        self.asked_at = -1.0
        self.closing = False
        self.end = 0
        self.wanted: set[int] = set()
        """Messages that some member lacks and that the heir is sending to everybody."""
        self.confirmed: set[int] = set()


class Tree(Recovering):
    """The whole protocol: handing down, recovering, inheriting."""

    def __init__(self, layer: Layer, lists: Lists) -> None:
        super().__init__(layer, lists)
        self._estates: dict[StreamKey, Estate] = {}
        self.inherited = 0
        self.buried_alive = 0

    def spread(self, frame: Frame, listed: Listed, shape: int) -> None:
        """Send a frame to all members of the list, in a stream of this member, which is in the list."""
        self._spread_as_proxy(frame, listed, shape, self._me)

    def first_living(self, listed: Listed) -> int:
        """The first living member of the list, which is the proxy where all share one."""
        return next(
            (place for place, member in enumerate(listed.members) if member not in self._suspected),
            listed.places[self._me],
        )

    def reset(self) -> None:
        """A new view: everything before it is settled without us."""
        self._streams.clear()
        self._own.clear()
        self._haves.clear()
        self._in_hand.clear()
        self._resets.clear()
        self._submissions.clear()
        self._estates.clear()
        self._silent.clear()

    def forget_lists(self) -> None:
        """Forget messages along lists that are no longer known; the layer above repairs what a member lacks."""
        for key in [key for key in self._streams if self._lists.known(key[0]) is None]:
            for record in self._streams.pop(key).records.values():
                self._in_hand.discard((record.origin, record.submission))
            self._own.pop(key[0], None)
            self._estates.pop(key, None)

    def _heir(self, stream: Stream) -> int:
        """The index of the next living member after the proxy, as far as this member knows."""
        listed = stream.listed
        following = listed.range(stream.key[1] + 1, len(listed) - 1)
        return next((place for place in following if listed.members[place] not in self._suspected), stream.key[1])

    def _look_after(self, stream: Stream, now: float) -> None:
        """The proxy of this stream is dead: settle the stream, or tell the heir what is held here."""
        heir = stream.listed.members[self._heir(stream)]
        if heir == self._me:
            estate = self._estates.get(stream.key)
            if estate is None:
                estate = self._estates[stream.key] = Estate()
                self.inherited += 1
            stream.by = stream.listed.places[self._me]
            self._settle_estate(stream, estate, now)
        elif now >= stream.asked_at:
            stream.asked_at = now + ASK_S
            self._tell_holding(heir, stream)

    def _tell_holding(self, heir: int, stream: Stream) -> None:
        """From now on only the heir may add messages here: else it would decide on an answer that is no longer true."""
        stream.by = stream.listed.places[heir]
        upto = stream.end if stream.closed else stream.next
        ahead = stream.ahead()[:NUMBERS_PER_WORD_MAX]
        self._say(heir, Holding(*stream.key, stream.done, upto, ahead, stream.closed))

    def asked(self, member: int, word: Asked) -> None:
        listed = self._lists.known(word.along)
        if listed is None or word.proxy >= len(listed) or member not in listed.places or self._me not in listed.places:
            return
        stream = self._stream(listed, word.proxy, word.stream)
        if stream is not None and stream.proxy != self._me:
            self._tell_holding(member, stream)

    def holds(self, member: int, word: Holding) -> None:
        """A member tells us what it has of a stream, because it takes us for the heir."""
        listed = self._lists.known(word.along)
        if listed is None or word.proxy >= len(listed) or member not in listed.places or self._me not in listed.places:
            return
        stream = self._stream(listed, word.proxy, word.stream)
        if stream is None:
            return
        estate = self._estates.get(stream.key)
        if stream.closed:
            if estate is not None and word.closed:
                estate.confirmed.add(listed.places[member])
            elif not word.closed:
                self._say(member, Closed(*stream.key, stream.end))
        elif estate is not None:
            estate.answers[listed.places[member]] = word
            self._settle_estate(stream, estate, self._now())
        self._wake_at(self._now() + LOOK_S)

    def _settle_estate(self, stream: Stream, estate: Estate, now: float) -> None:
        listed = stream.listed
        living = {
            place
            for place, member in enumerate(listed.members)
            if member != self._me and place != stream.key[1] and member not in self._suspected
        }
        silent = living - estate.answers.keys()
        if silent:
            if now >= estate.asked_at:
                estate.asked_at = now + ASK_S
                for place in sorted(silent):
                    self._say(listed.members[place], Asked(*stream.key))
            return
        answers = [estate.answers[place] for place in sorted(living)]
        closed = [answer.next for answer in answers if answer.closed]
        if closed:
            self._close(stream, estate, max(closed), living)
            return
        self._fetch_and_send(stream, estate, answers, living, now)

    def _fetch_and_send(
        self, stream: Stream, estate: Estate, answers: list[Holding], living: set[int], now: float
    ) -> None:
        lowest = min([stream.next, *(answer.next for answer in answers)])
        end = max([stream.next, *(answer.next for answer in answers)])
        while end in stream.records or any(end in answer.ahead for answer in answers):
            end += 1
        missing = stream.missing(NUMBERS_PER_WORD_MAX, end)
        if missing:
            self._fetch(stream, estate, missing[0], missing, now)
            return
        self._go_on(stream)
        for number in sorted(stream.records):
            record = stream.records.get(number)
            if record is None or number < lowest or number >= end or number in estate.wanted:
                continue  # everywhere, or nobody's any more, or on its way
            if all(_has(answer, number) for answer in answers):
                continue
            estate.wanted.add(number)
            self._take_on(stream, number, record, ROOT, self._all_others(stream), stream.last_shape)
        if not any(self._under_way(stream, number) for number in estate.wanted):
            self._close(stream, estate, end, living)

    def _fetch(self, stream: Stream, estate: Estate, first: int, missing: list[int], now: float) -> None:
        if now < stream.asked_at:
            return
        stream.asked_at = now + ASK_S
        holders = [place for place, answer in estate.answers.items() if _has(answer, first)]
        living = [place for place in holders if stream.listed.members[place] not in self._suspected]
        if living:
            whom = stream.listed.members[self._layer.ports.random.choice(sorted(living))]
            self._say(whom, Missing(*stream.key, missing))
        else:
            estate.answers.clear()  # who had it is gone: ask again, the end is nearer now

    def _under_way(self, stream: Stream, number: int) -> bool:
        record = stream.records.get(number)
        return record is not None and any(task.parent == ROOT and task.waiting for task in record.tasks.values())

    def _settled(self, stream: Stream, number: int) -> None:
        estate = self._estates.get(stream.key)
        if estate is not None and not stream.closed:
            self._settle_estate(stream, estate, self._now())

    def _close(self, stream: Stream, estate: Estate, end: int, living: set[int]) -> None:
        self._go_on(stream)
        stream.close(end)
        estate.end = end
        for place in sorted(living):
            self._say(stream.listed.members[place], Closed(*stream.key, end))

    def closed(self, member: int, word: Closed) -> None:
        listed = self._lists.known(word.along)
        if listed is None or word.proxy >= len(listed) or self._me not in listed.places:
            return
        if listed.members[word.proxy] == self._me:
            self._buried_alive(self._streams.get((word.along, word.proxy, word.stream)))
            return
        stream = self._stream(listed, word.proxy, word.stream)
        if stream is None or stream.closed or stream.next < word.end:
            return  # or it is not all here yet: we tell the heir again what we have
        stream.close(word.end)

    def _buried_alive(self, stream: Stream | None) -> None:
        """The others closed a stream of ours. Messages that some may lack are sent again, in another stream."""
        if stream is None or stream.closed:
            return
        self.buried_alive += 1
        left = [stream.records[number] for number in sorted(stream.records)]
        stream.close(stream.next)
        for record in left:
            self._spread_as_proxy(record.frame, stream.listed, stream.last_shape, record.origin, record.submission)

    def stats(self) -> dict[str, Any]:
        streams = self._streams.values()
        return {
            "streams": len(self._streams),
            "kept": sum(len(stream.records) for stream in streams),
            "kept_bytes": sum(record.frame.size for stream in streams for record in stream.records.values()),
            "submissions": len(self._submissions),
            "spread": self.spread_frames,
            "handed_down": self.handed_down,
            "sent_again": self.sent_again,
            "expired": self.expired,
            "bypassed": self.bypassed,
            "resets": self.resets,
            "gaps": self.gaps,
            "inherited": self.inherited,
            "buried_alive": self.buried_alive,
            "jumped": self.jumped,
            "refused": self.refused,
        }

    def validate(self) -> None:
        assert len(self._streams) <= STREAMS_MAX + len(self._own)
        for key, stream in self._streams.items():
            assert key == stream.key
            stream.validate()


def _has(answer: Holding, number: int) -> bool:
    return number < answer.next or number in answer.ahead
