"""Handing a message down the tree, and its acknowledgements up again, while nobody fails."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from ...core.frame import Frame, Header
from ...core.ids import ALL
from ...core.ports import Timer
from ...core.tree import AT_A_TIME_MAX, parts, steps
from ...stack.events import Hurry
from ...stack.layer import Layer
from .lists import Listed, Lists
from .streams import ROOT, Range, Record, Seen, Stream, StreamKey, Task
from .words import HAVES_PER_WORD_MAX, Down, Have, Up

PATIENCE_S = 0.05
"""How long a member waits for the acknowledgement of a leaf, …"""
PATIENCE_STEP_S = 0.03
"""… and how much longer for each step that its sub-list needs."""
ACK_S = 0.01
"""Acknowledgements wait so long to be sent together: they only free memory, and messages go first."""
HAVES_WAITING_MAX = 64
HOLD_S = 2.0
"""A member that holds messages for so long asks whether they are still needed."""
SLACK_S = 1e-6
NEVER = float("inf")
GAP_S = 0.005
"""A message that is missing may only have been overtaken."""
HURRY_BYTES = 4_096
"""A frame of so many bytes is sent to the first child before it is encoded for the next one; smaller frames leave
together at the end of the stimulus. In a doubling tree the first sender sends all frames of a long message to one child
after the other: while its last child, a leaf, gets its copy, the children before it serve the others."""
HURRY = Hurry()
STREAMS_MAX = 4_096
SEEN_ORIGINS_MAX = 10_000


class Handing:
    """The part of ``Tree`` that assumes that everybody answers; ``recovering`` has the rest."""

    def __init__(self, layer: Layer, lists: Lists) -> None:
        self._layer = layer
        self._lists = lists
        self._streams: dict[StreamKey, Stream] = {}
        self._own: dict[int, Stream] = {}
        self._opened = 0
        self._haves: dict[int, list[Have]] = {}
        self._in_hand: set[tuple[int, int]] = set()
        self._seen: dict[int, Seen] = {}
        self._suspected: set[int] = set()
        self._silent: dict[int, float] = {}
        self._measured_s: dict[int, float] = {}
        self._timer: Timer | None = None
        self._wakes_at = NEVER
        self.spread_frames = 0
        self.handed_down = 0
        self.sent_again = 0
        self.refused = 0
        self.jumped = 0

    @property
    def _me(self) -> int:
        return self._layer.node.me

    def _now(self) -> float:
        return self._layer.ports.clock.now()

    def _say(self, member: int, header: Header) -> None:
        self._layer.pass_down(Frame(sender=self._me, to=member, headers=[header]))

    # Down

    def _spread_as_proxy(self, frame: Frame, listed: Listed, shape: int, origin: int, submission: int = 0) -> None:
        """Give the message its number and see to it that everybody gets it."""
        self.spread_frames += 1
        stream = self._own.get(listed.identity)
        if stream is None or stream.closed:
            stream = self._open(listed)
        number = stream.next
        stream.next += 1
        stream.last_shape = shape
        stream.heard_at = self._now()
        record = stream.records[number] = Record(frame, origin, submission)
        if submission:
            self._in_hand.add((origin, submission))
        self._pass(record)
        self._take_on(stream, number, record, ROOT, self._all_others(stream), shape)

    def _open(self, listed: Listed) -> Stream:
        self._opened += 1
        key = (listed.identity, listed.places[self._me], self._opened)
        stream = self._own[listed.identity] = self._streams[key] = Stream(key, listed, self._now())
        return stream

    def _all_others(self, stream: Stream) -> Range:
        size = len(stream.listed)
        return ((stream.listed.places[self._me] + 1) % size, size - 1)

    def _take_on(
        self,
        stream: Stream,
        number: int,
        record: Record,
        parent: int,
        scope: Range,
        shape: int,
        without: Iterable[int] = (),
    ) -> None:
        """Take responsibility for a sub-list: send the message to some of its members, and wait for them."""
        task = record.tasks[(parent, scope)] = Task(parent, scope, shape, self._now())
        task.due_at = task.since + self._patience_s(scope[1])
        if not scope[1]:
            self._answered(stream, number, record, task)  # a leaf has nobody to wait for
            return
        self._hand_out(stream, number, record, task, scope, set(without))
        if task.waiting:
            self._wake_at(task.due_at)

    def _hand_out(
        self, stream: Stream, number: int, record: Record, task: Task, scope: Range, without: set[int]
    ) -> None:
        """Share a sub-list out among its living members. A dead member belongs to the part before it, or is skipped."""
        listed = stream.listed
        places = list(listed.range(*scope))
        avoided = self._avoided(listed) | without
        living = [at for at, place in enumerate(places) if place not in avoided]
        task.skipped.update(places[: living[0]] if living else places)
        shares = parts(len(living), task.shape)
        ends = [*sorted(living[head] for head, _ in shares), len(places)]
        following = dict(itertools.pairwise(ends))
        for head, _ in shares:
            at = living[head]
            child = places[at]
            task.waiting[child] = ((child + 1) % len(listed), following[at] - at - 1)
            self._give(stream, number, record, task, child)
        if not task.waiting:
            self._answered(stream, number, record, task)

    def _give(self, stream: Stream, number: int, record: Record, task: Task, child: int) -> None:
        first, count = task.waiting[child]
        self._send(stream, number, record, child, (first, count), task.shape)
        if record.frame.size >= HURRY_BYTES and (task.parent != ROOT or task.shape > AT_A_TIME_MAX):
            self._layer.tell_down(HURRY)

    def _send(self, stream: Stream, number: int, record: Record, child: int, scope: Range, shape: int) -> None:
        listed, frame = stream.listed, record.frame
        avoided = self._avoided(listed)
        without = [place for place in listed.range(*scope) if place in avoided] if avoided else []
        down = Down(
            *stream.key, number, record.origin, record.submission, *scope, shape, stream.by, stream.done, without
        )
        self.handed_down += 1
        stream.told_done = max(stream.told_done, stream.done)
        self._layer.pass_down(
            Frame(
                sender=self._me,
                to=listed.members[child],
                group=frame.group,
                first=frame.first,
                count=frame.count,
                size=frame.size,
                kind=frame.kind,
                headers=[*frame.headers, down],
                bodies=frame.bodies,
            )
        )

    def _avoided(self, listed: Listed) -> set[int]:
        """Members that get nothing to pass on: they are suspected, or did not answer in time."""
        if not self._suspected and not self._silent:
            return set()
        places = listed.places
        return {places[member] for member in (*self._suspected, *self._silent) if member in places}

    # What comes down

    def came_down(self, frame: Frame, down: Down) -> None:
        listed = self._lists.known(down.along)
        if listed is None:
            self._lists.keep_early(frame)
            return
        size, parent = len(listed), frame.sender
        if down.proxy >= size or down.first >= size or down.count >= size or self._me not in listed.places:
            self.refused += 1
            return
        stream = self._stream(listed, down.proxy, down.stream)
        if stream is None or self._is_over(stream, parent):
            return
        if down.by != stream.by:
            self.refused += 1
            return
        if stream.forget(down.done):
            self.jumped += 1
        stream.parent = parent
        stream.heard_at = self._now()
        stream.last_shape = down.shape
        scope = (down.first, down.count)
        if down.number < stream.done:
            self._acknowledge(parent, stream, down.number, scope, set())
            return
        frame.headers.pop()
        record = stream.records.get(down.number)
        if record is None:
            record = stream.records[down.number] = Record(frame, down.origin, down.submission)
        known = record.tasks.get((parent, scope))
        if known is None:
            self._take_on(stream, down.number, record, parent, scope, down.shape, down.without)
        elif known.waiting:
            self._still_working(stream, down.number, parent)
        else:
            self._acknowledge(parent, stream, down.number, scope, known.skipped)
        self._go_on(stream)
        self._wake_at(stream.heard_at + (HOLD_S if down.number < stream.next else GAP_S))

    def _stream(self, listed: Listed, proxy: int, number: int) -> Stream | None:
        key = (listed.identity, proxy, number)
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= STREAMS_MAX or listed.members[proxy] == self._me:
                self.refused += 1
                return None
            stream = self._streams[key] = Stream(key, listed, self._now())
            stream.orphan = listed.members[proxy] in self._suspected
        return stream

    def _go_on(self, stream: Stream) -> None:
        """Pass up the messages that are due; messages that came ahead wait."""
        if stream.proxy == self._me:
            return
        while stream.next in stream.records:
            record = stream.records[stream.next]
            stream.next += 1
            stream.asked = 0
            self._pass(record)

    def _pass(self, record: Record) -> None:
        origin = record.origin
        if origin == self._me:
            return
        if record.submission:
            seen = self._seen.get(origin)
            if seen is None:
                if len(self._seen) >= SEEN_ORIGINS_MAX:
                    del self._seen[next(iter(self._seen))]
                seen = self._seen[origin] = Seen()
            if not seen.first_time(record.submission):
                return
        frame = record.frame.copy()
        frame.sender, frame.to = origin, ALL
        self._layer.pass_up(frame)

    # Acknowledgements

    def _answered(self, stream: Stream, number: int, record: Record, task: Task) -> None:
        """Nobody in the sub-list is waited for any more."""
        if not task.tries:
            self._measure(task)
        if task.parent == ROOT:
            self._reached_all(stream, number, record, task)
        else:
            self._acknowledge(task.parent, stream, number, task.scope, task.skipped)

    def _acknowledge(self, parent: int, stream: Stream, number: int, scope: Range, skipped: set[int]) -> None:
        """Acknowledge a little later, together with others; neighbouring numbers are joined."""
        if not self._haves:
            self._wake_at(self._now() + ACK_S)
        haves = self._haves.setdefault(parent, [])
        if len(haves) >= HAVES_WAITING_MAX:
            self._layer.unsettled = True
        last = haves[-1] if haves else None
        if (
            last is not None
            and not skipped
            and not last.skipped
            and (last.along, last.proxy, last.stream) == stream.key
            and (last.first, last.count) == scope
            and last.number + last.messages == number
        ):
            last.messages += 1
        else:
            haves.append(Have(*stream.key, number, 1, *scope, sorted(skipped)))

    def settle(self) -> None:
        for parent in [parent for parent, haves in self._haves.items() if len(haves) >= HAVES_WAITING_MAX]:
            self._say_haves(parent, self._haves.pop(parent))

    def _say_all_haves(self) -> None:
        waiting, self._haves = self._haves, {}
        for parent, haves in waiting.items():
            self._say_haves(parent, haves)

    def _say_haves(self, parent: int, haves: list[Have]) -> None:
        for at in range(0, len(haves), HAVES_PER_WORD_MAX):
            self._say(parent, Up(haves[at : at + HAVES_PER_WORD_MAX]))

    def came_up(self, member: int, up: Up) -> None:
        for have in up.haves:
            stream = self._streams.get((have.along, have.proxy, have.stream))
            if stream is None or member not in stream.listed.places:
                continue
            child = stream.listed.places[member]
            for number in range(have.number, have.number + have.messages):
                record = stream.records.get(number)
                if record is not None:
                    self._child_answered(stream, number, record, child, have)

    def _child_answered(self, stream: Stream, number: int, record: Record, child: int, have: Have) -> None:
        size = len(stream.listed)
        for task in list(record.tasks.values()):
            if task.waiting.get(child) == (have.first, have.count):
                del task.waiting[child]
                task.skipped.update(place for place in have.skipped if place < size)
                if not task.waiting:
                    self._answered(stream, number, record, task)

    def _reached_all(self, stream: Stream, number: int, record: Record, task: Task) -> None:
        """At the root: everybody answered. The root itself sends to members that were skipped and may live."""
        listed = stream.listed
        skipped, task.skipped = task.skipped, set()
        for place in sorted(skipped):
            if listed.members[place] not in self._suspected and listed.members[place] != self._me:
                task.waiting[place] = ((place + 1) % len(listed), 0)
                self._give(stream, number, record, task, place)
        if not task.waiting:
            self._complete(stream, number, record)

    # Time

    def _patience_s(self, count: int) -> float:
        """How long to wait for a sub-list: longer for a longer one, and at least as long as such a one took before."""
        level = steps(count)
        return max(PATIENCE_S + PATIENCE_STEP_S * level, 3 * self._measured_s.get(level, 0.0))

    def _measure(self, task: Task) -> None:
        level, took_s = steps(task.scope[1]), self._now() - task.since
        known_s = self._measured_s.get(level, 0.0)
        self._measured_s[level] = known_s + (took_s - known_s) * (0.5 if took_s > known_s else 0.1)

    def _wake_at(self, when: float) -> None:
        """Look at all streams again, at this time at the latest."""
        if when < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = when
            self._timer = self._layer.after(max(when - self._now(), 0.0), self._tick)

    # What recovering adds

    def _tick(self) -> None:
        raise NotImplementedError

    def _is_over(self, stream: Stream, sender: int) -> bool:
        raise NotImplementedError

    def _still_working(self, stream: Stream, number: int, parent: int) -> None:
        raise NotImplementedError

    def _complete(self, stream: Stream, number: int, record: Record) -> None:
        raise NotImplementedError
