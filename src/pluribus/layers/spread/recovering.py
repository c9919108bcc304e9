"""What the tree does when a child does not answer: it sends again, bypasses the child, and asks members above for
time."""

from __future__ import annotations

from ...core.frame import Frame
from ...core.tree import parts
from ...stack.layer import Layer
from .handing import GAP_S, HOLD_S, NEVER, SLACK_S, Handing
from .lists import Listed, Lists
from .streams import ROOT, Record, Stream, Submission, Task
from .words import (
    NUMBERS_PER_WORD_MAX,
    Closed,
    Done,
    DonePlease,
    Failed,
    Missing,
    Submit,
    Taken,
    Working,
)

TRIES_MAX = 3
"""How often a message is sent again to a silent child before the child is bypassed."""
RETRY_S_MAX = 1.0
SILENT_S = 3.0
"""Seconds for which a silent child is bypassed, unless it is heard before."""
GAP_S_MAX = 0.3
MISSING_AT_ONCE = 64
FORGET_S = 0.2
"""After so long without a next message, the permission to forget is sent on its own."""
LOOK_S = 0.05
"""How often streams of a dead proxy are looked at."""
SUBMIT_S = 0.3
FINISHED_MAX = 4_096


class Recovering(Handing):
    """Adds to ``Handing``: time-outs, gaps, dead members, and messages that are handed to a proxy."""

    def __init__(self, layer: Layer, lists: Lists) -> None:
        super().__init__(layer, lists)
        self._resets: dict[tuple[int, tuple[int, int, int]], list[int]] = {}
        self._submissions: dict[int, Submission] = {}
        self._submitted = 0
        self._finished: dict[tuple[int, int], None] = {}
        self.expired = 0
        self.bypassed = 0
        self.resets = 0
        self.gaps = 0

    # Time

    def _tick(self) -> None:
        self._timer = None
        self._wakes_at = NEVER
        now = self._now() + SLACK_S
        for member in [member for member, until in self._silent.items() if until <= now]:
            del self._silent[member]
        self._say_all_haves()
        following = NEVER
        for stream in list(self._streams.values()):
            following = min(following, self._look_at(stream, now))
        for number, submission in list(self._submissions.items()):
            if submission.due_at <= now:
                self._submit_again(number, submission)
            following = min(following, submission.due_at)
        self._wake_at(following)

    def _look_at(self, stream: Stream, now: float) -> float:
        """Do what is due for a stream; return when to look again."""
        if stream.closed:
            return NEVER
        following = NEVER
        for number, record, task in stream.waiting():
            if task.due_at <= now:
                self._expired(stream, number, record, task, now)
            if task.waiting:
                following = min(following, task.due_at)
        if stream.proxy == self._me:
            if stream.told_done < stream.done:
                following = min(following, stream.heard_at + FORGET_S)
                if stream.heard_at + FORGET_S <= now:
                    self._tell_done(stream)
        elif stream.orphan:
            self._look_after(stream, now)
            following = min(following, now + LOOK_S)
        elif stream.records:
            following = min(following, self._mind_gaps(stream, now), stream.heard_at + HOLD_S)
            if stream.heard_at + HOLD_S <= now:
                stream.heard_at = now
                self._say(stream.proxy, DonePlease(*stream.key))
        return following

    def _expired(self, stream: Stream, number: int, record: Record, task: Task, now: float) -> None:
        """A child did not answer in time. Ask our parent to wait longer; then send again, or bypass the child."""
        self.expired += 1
        task.tries += 1
        patience_s = self._patience_s(1 + max(count for _, count in task.waiting.values()))
        task.due_at = now + min(patience_s * 2**task.tries, max(patience_s, RETRY_S_MAX))
        self._still_working(stream, number, task.parent)
        avoided = self._avoided(stream.listed)
        for child in list(task.waiting):
            if child not in task.waiting:
                continue
            if task.tries > TRIES_MAX:
                self._found_silent(stream, child, now)
                self._bypass(stream, number, record, task, child)
            elif child in avoided and task.parent != ROOT:
                self._bypass(stream, number, record, task, child)
            else:
                self.sent_again += 1
                self._give(stream, number, record, task, child)

    def _found_silent(self, stream: Stream, child: int, now: float) -> None:
        member = stream.listed.members[child]
        if member not in self._silent and stream.proxy != self._me:
            self._say(stream.proxy, Failed(stream.key[0], child))
        self._silent[member] = now + SILENT_S

    def _bypass(self, stream: Stream, number: int, record: Record, task: Task, child: int) -> None:
        """Send its sub-list to others. The root will see whether the child itself got the message."""
        self.bypassed += 1
        scope = task.waiting.pop(child)
        task.skipped.add(child)
        self._hand_out(stream, number, record, task, scope, set())

    def _still_working(self, stream: Stream, number: int, parent: int) -> None:
        if parent != ROOT:
            self._layer.unsettled = True
            self._resets.setdefault((parent, stream.key), []).append(number)

    def settle(self) -> None:
        super().settle()
        if self._resets:
            resets, self._resets = self._resets, {}
            for (parent, key), numbers in resets.items():
                self._say(parent, Working(*key, numbers[:NUMBERS_PER_WORD_MAX]))

    def working(self, member: int, word: Working) -> None:
        """A child asks for time: it gets it, and this member asks its own parent for time."""
        stream = self._streams.get((word.along, word.proxy, word.stream))
        if stream is None or member not in stream.listed.places:
            return
        child, now = stream.listed.places[member], self._now()
        for number in word.numbers:
            record = stream.records.get(number)
            for task in record.tasks.values() if record is not None else ():
                if child in task.waiting:
                    self.resets += 1
                    task.due_at = now + self._patience_s(task.scope[1])
                    self._still_working(stream, number, task.parent)

    # Who lives

    def heard(self, member: int) -> None:
        if self._silent:
            self._silent.pop(member, None)

    def failed(self, word: Failed) -> None:
        """A member below cannot reach another member, which then gets nothing to pass on."""
        listed = self._lists.known(word.along)
        if listed is not None and word.member < len(listed) and listed.members[word.member] != self._me:
            self._silent[listed.members[word.member]] = self._now() + SILENT_S

    def suspected(self, member: int) -> None:
        self._suspected.add(member)
        now = self._now()
        for stream in list(self._streams.values()):
            child = stream.listed.places.get(member)
            if child is None or stream.closed:
                continue
            for number, record, task in stream.waiting():
                if child in task.waiting:
                    self._still_working(stream, number, task.parent)
                    self._bypass(stream, number, record, task, child)
            if stream.proxy == member:
                stream.orphan = True
            if stream.orphan:
                self._look_after(stream, now)
        for number, submission in list(self._submissions.items()):
            if submission.listed.members[submission.proxy] == member:
                self._submit_again(number, submission)
        self._wake_at(now + LOOK_S)

    def unsuspected(self, member: int) -> None:
        self._suspected.discard(member)
        self._silent.pop(member, None)
        for stream in self._streams.values():
            if stream.proxy == member and not stream.closed:
                stream.orphan = False
                stream.by = stream.key[1]

    # Gaps

    def _mind_gaps(self, stream: Stream, now: float) -> float:
        """A later message is here and an earlier one is not: ask the member that sent the later one. Returns when to
        look again."""
        missing = stream.missing(MISSING_AT_ONCE)
        if not missing:
            return NEVER
        if now < stream.asked_at:
            return stream.asked_at
        stream.asked += 1
        stream.asked_at = now + min(GAP_S * 2**stream.asked, GAP_S_MAX)
        self.gaps += 1
        whom = stream.parent if stream.asked % 4 else stream.proxy
        self._say(whom, Missing(*stream.key, missing))
        return stream.asked_at

    def missing(self, member: int, word: Missing) -> None:
        stream = self._streams.get((word.along, word.proxy, word.stream))
        if stream is None or member not in stream.listed.places:
            return
        child = stream.listed.places[member]
        for number in word.numbers[:MISSING_AT_ONCE]:
            record = stream.records.get(number)
            if record is None:
                continue
            self.sent_again += 1
            task = next((task for task in record.tasks.values() if child in task.waiting), None)
            if task is not None:
                self._give(stream, number, record, task, child)
            else:
                self._send(stream, number, record, child, ((child + 1) % len(stream.listed), 0), stream.last_shape)

    # Forgetting

    def _complete(self, stream: Stream, number: int, record: Record) -> None:
        if stream.proxy != self._me:
            self._settled(stream, number)
            return
        if record.submission:
            self._in_hand.discard((record.origin, record.submission))
            if len(self._finished) >= FINISHED_MAX:
                del self._finished[next(iter(self._finished))]
            self._finished[(record.origin, record.submission)] = None
            self._say(record.origin, Taken(stream.key[0], record.submission))
        stream.completed(number)
        self._wake_at(stream.heard_at + FORGET_S)

    def _tell_done(self, stream: Stream) -> None:
        stream.told_done = stream.done
        self._pass_done(stream, self._all_others(stream), stream.last_shape)

    def _pass_done(self, stream: Stream, scope: tuple[int, int], shape: int) -> None:
        listed = stream.listed
        places = list(listed.range(*scope))
        for head, length in parts(len(places), shape):
            child = places[head]
            done = Done(*stream.key, stream.done, (child + 1) % len(listed), length, shape)
            self._say(listed.members[child], done)

    def told_done(self, word: Done) -> None:
        stream = self._streams.get((word.along, word.proxy, word.stream))
        if stream is None or stream.closed or stream.proxy == self._me:
            return
        if stream.forget(word.done):
            self.jumped += 1
        if max(word.first, word.count) < len(stream.listed):
            self._pass_done(stream, (word.first, word.count), word.shape)

    def done_please(self, member: int, word: DonePlease) -> None:
        stream = self._streams.get((word.along, word.proxy, word.stream))
        if stream is not None and not stream.closed:
            self._say(member, Done(*stream.key, stream.done, 0, 0, stream.last_shape))

    # Submissions

    def submit(self, frame: Frame, listed: Listed, shape: int, proxy: int) -> None:
        """Hand the frame to a proxy, and to another one if that fails, until every member is known to have it."""
        self._submitted += 1
        frame.headers.append(Submit(listed.identity, self._submitted, shape))
        submission = self._submissions[self._submitted] = Submission(frame, listed, proxy)
        self._submit(submission)
        self._wake_at(submission.due_at)

    def _submit(self, submission: Submission) -> None:
        submission.due_at = self._now() + max(SUBMIT_S, self._patience_s(len(submission.listed))) * 2 ** min(
            submission.tries, 3
        )
        frame = submission.frame.copy()
        frame.to = submission.listed.members[submission.proxy]
        self._layer.pass_down(frame)

    def _submit_again(self, number: int, submission: Submission) -> None:
        """The proxy is dead or slow: ask the next member in the list, which may have the message already."""
        listed = submission.listed
        submission.tries += 1
        size, avoided = len(listed), self._avoided(listed)
        following = [(submission.proxy + step) % size for step in range(1, size + 1)]
        submission.proxy = next((place for place in following if place not in avoided), submission.proxy)
        if listed.members[submission.proxy] == self._me:
            del self._submissions[number]
            frame = submission.frame
            word = frame.headers.pop()
            self._spread_as_proxy(frame, listed, word.shape, self._me, number)
        else:
            self._submit(submission)

    def submitted(self, frame: Frame, word: Submit) -> None:
        listed = self._lists.known(word.along)
        if listed is None:
            self._lists.keep_early(frame)
            return
        if self._me not in listed.places:
            self.refused += 1
            return
        name = (frame.sender, word.number)
        if name in self._finished:
            self._say(frame.sender, Taken(word.along, word.number))
            return
        if name in self._in_hand:
            return
        frame.headers.pop()
        self._spread_as_proxy(frame, listed, word.shape, frame.sender, word.number)

    def taken(self, word: Taken) -> None:
        self._submissions.pop(word.number, None)

    # What inheriting adds

    def _look_after(self, stream: Stream, now: float) -> None:
        raise NotImplementedError

    def _settled(self, stream: Stream, number: int) -> None:
        raise NotImplementedError

    def _is_over(self, stream: Stream, sender: int) -> bool:
        if stream.closed and sender == stream.proxy:
            self._say(sender, Closed(*stream.key, stream.end))
        return stream.closed
