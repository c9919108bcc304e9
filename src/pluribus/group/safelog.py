"""The volatile log: the safe order of a group as a log port. It lives while the primary lives.

Theory of operation
-------------------
A command is a message of a group in safe total order, so every member is handed the same commands in the same order;
the index of a command is its place in that order. Commands that belong together are one message; a barrier is a message
without a command. A command of this member is committed when it comes back in its place of the order.

The log reads its own group as soon as something arrives, in slices, so that a busy log leaves the loop to other tasks.
Joiners get the state through state transfer (``state``), with its index.

*Certainty.* A member that passes from a primary to the next has delivered everything that it sent before. A member that
was cut off does not know what became of its commands: the primary may have gone on with them, so they are
``Uncertain``, and so are commands that a restored state holds already. Commands that wait and were not sent are kept
until there is a primary again.

*Generations.* If the last member with the state is gone, a joiner begins with an empty log. It draws a random number,
the generation, which travels with the state: equal numbers mean that the log between two moments is the same one. The
number changes too when the log goes on with the state of an older primary, or of another chain (a forced one): members
that are gone may have had more of the log.

Bounded: commands that wait or are under way by ``COMMANDS_MAX`` and ``COMMAND_BYTES_MAX``; then ``Overflow``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from struct import Struct

import msgspec

from ..core.errors import Closed, Overflow, PluribusError, TooLarge, Uncertain
from ..core.limits import BODY_BYTES_MAX, TURN_S_MAX
from ..wire.bodies import BYTES, Kind, encode_body
from .channel import Channel
from .dispatch import Dispatch
from .log import Done
from .pieces import Large
from .state.line import Seens, ViewChange
from .state.words import Seen

log = logging.getLogger(__name__)

COMMANDS_MAX = 65_536
COMMAND_BYTES_MAX = 256 << 20
PROMISES = "total safe"


_head = Struct("<QQ")
"""In front of a state on its way to a joiner: the generation, and the index of the next command."""


class Submission(msgspec.Struct, eq=False):
    """Commands that are to be ordered together; a barrier has none."""

    kind: Kind
    encoded: bytes
    done: Done
    barrier: bool = False
    large: Large | None = None
    sending: bool = False
    """True while it is sent in pieces."""
    offset: int = 0
    """The place of its first command in the frame that brought it."""


class Together:
    """The completions of all callers that share a barrier."""

    __slots__ = ("waiting",)

    def __init__(self, first: Done) -> None:
        self.waiting = [first]

    def __call__(self, index: int, error: PluribusError | None) -> None:
        for done in self.waiting:
            done(index, error)


class SafeLog:
    """One member's end of the log. ``start`` it when the call-backs are set."""

    def __init__(self, name: str, dispatch: Dispatch, generation: int) -> None:
        self.name = name
        self.applied = 0
        self.on_commit: Callable[[int, Sequence[bytes]], None] = lambda index, commands: None
        self.on_snapshot: Callable[[], bytes] = bytes
        self.on_snapshot_in_pieces: Callable[[], Iterable[bytes]] | None = None
        """In the place of ``on_snapshot``: an iterator of pieces of the state as it is now, which are fetched later."""
        self.on_restore: Callable[[int, bytes], None] = lambda index, state: None
        self.on_ready: Callable[[], None] = lambda: None
        """Called when the state is here (again), and when the group has other members."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called before the state is replaced by one of another generation, which lacks what was committed here."""
        self.on_failed: Callable[[], None] = self.close
        """Called when the owner's state may differ from the others'."""
        self.generation = 0
        self.malformed = 0
        self._own_generation = generation
        self._dispatch = dispatch
        self._clock = dispatch.clock
        self._waiting: deque[Submission] = deque()
        self._sent: dict[int, Submission] = {}
        self._bytes = 0
        self._scheduled = False
        self._pumping = False
        self._closed = False
        self._channel: Channel | None = None

    def start(self) -> Channel:
        channel = self._channel = self._dispatch.join(self.name, promises=PROMISES, state=self)
        transfer = channel.state
        assert transfer is not None, "joined with a state"
        channel.acknowledged = None  # the owner knows better what it acknowledged to whom
        transfer.on_mark = self._passed_view
        transfer.on_restored = self._passed_seen
        tell = transfer.on_older

        def older(change: ViewChange) -> None:
            self._go_on_older(change)
            tell(change)

        transfer.on_older = older
        channel.on_arrival = self._arrived
        channel.on_room = self._pump
        channel.on_view = lambda view: self.on_ready()
        self._arrived()
        return channel

    @property
    def ready(self) -> bool:
        """Whether the state of the log is here, so that what is applied is not what was before the first command."""
        return self.generation != 0

    @property
    def paused(self) -> str:
        """Why nothing can be ordered now; empty if it can."""
        return self._channel.paused if self._channel is not None else "is not joined yet"

    def close(self) -> None:
        """Leave the group. Commands under way are uncertain; commands that wait are not sent."""
        if self._closed or self._channel is None:
            return
        self._closed = True
        self._dispatch.leave(self._channel)
        sent, self._sent = self._sent, {}
        waiting, self._waiting = self._waiting, deque()
        for submission in sent.values():
            submission.done(-1, Uncertain(f"the log {self.name!r} was closed before the answer: ask another member"))
        for submission in waiting:
            submission.done(-1, Closed(f"the log {self.name!r} was closed: open it again"))

    # Submitting

    def submit(self, command: bytes, done: Done) -> None:
        self._submit(Submission(BYTES, command, done))

    def submit_many(self, commands: Sequence[bytes], done: Done) -> None:
        kind, encoded = encode_body(list(commands))
        self._submit(Submission(kind, encoded, done))

    def barrier(self, done: Done) -> None:
        """Calls share one barrier until it is sent."""
        last = self._waiting[-1] if self._waiting else None
        if last is not None and isinstance(last.done, Together):
            last.done.waiting.append(done)
            return
        kind, encoded = encode_body(None)
        self._submit(Submission(kind, encoded, Together(done), barrier=True))

    def withdraw(self, done: Done) -> bool:
        """Withdraw the submission with this completion, if it has not been sent; then ``done`` is not called."""
        for submission in self._waiting:
            if submission.done == done and submission.large is None:
                self._waiting.remove(submission)
                self._bytes -= len(submission.encoded)
                return True
        return False

    def _submit(self, submission: Submission) -> None:
        if self._closed:
            raise Closed(f"the log {self.name!r} is closed: open it again")
        size = len(submission.encoded)
        if size > BODY_BYTES_MAX:
            raise TooLarge(f"a command of {size:,} bytes exceeds {BODY_BYTES_MAX:,}: split it")
        waiting = len(self._waiting) + len(self._sent)
        if waiting >= COMMANDS_MAX or (waiting and self._bytes + size > COMMAND_BYTES_MAX):
            raise Overflow(f"{waiting:,} commands of {self._bytes:,} bytes wait in the log {self.name!r}: await some")
        self._bytes += size
        self._waiting.append(submission)
        if not self._pumping:
            self._pump()

    def _pump(self) -> None:
        """Send waiting commands as long as the window has room."""
        channel = self._channel
        if channel is None or self._pumping or self._closed:
            return
        self._pumping = True
        try:
            while self._waiting and self._may_send(channel):
                submission = self._waiting[0]
                if not self._send(channel, submission):
                    break
                if self._waiting and self._waiting[0] is submission:  # a large one is gone already
                    self._waiting.popleft()
        finally:
            self._pumping = False

    def _may_send(self, channel: Channel) -> bool:
        return not (channel.paused or channel.blocked or channel.closed or self._dispatch.blocked) and (
            self._dispatch.ports.engine.writable and channel.me in channel.view
        )

    def _send(self, channel: Channel, submission: Submission) -> bool:
        out, encoded = channel.out, submission.encoded
        if len(encoded) > out.longest:
            return self._send_large(channel, submission)
        if not out.fits(submission.kind, len(encoded)):
            if out.pending:
                self._dispatch.flush(channel)
            if not out.fits(submission.kind, len(encoded)):
                if out.pending:  # within a stimulus, a batch is closed after it
                    self._clock.call_soon(self._pump)
                return False
        first = not out.pending
        self._sent[out.add(submission.kind, encoded)] = submission
        if first:
            self._dispatch.opened(channel)
        return True

    def _send_large(self, channel: Channel, submission: Submission) -> bool:
        """Send as many pieces as the window takes, and the others when there is room again."""
        if submission.large is None:
            submission.large = Large(submission.kind, submission.encoded, None)
        large = submission.large
        if submission.sending or channel.out.room <= 0 or not large.admitted(channel.out, channel.restarts):
            return False
        submission.sending = True
        self._dispatch.stimulus(partial(self._send_pieces, channel, submission, large))
        if large.number is None:
            self._clock.call_soon(self._pump)
        return large.number is not None

    def _send_pieces(self, channel: Channel, submission: Submission, large: Large) -> None:
        """Within a stimulus it is called when that is over: everything may be otherwise by then."""
        if not self._closed and large.admitted(channel.out, channel.restarts):
            large.send_some(channel.restarts)
            if large.number is not None:
                large.end()
                self._sent[large.number] = submission  # at once: it may be delivered before anything else happens
                assert self._waiting[0] is submission, "nothing overtakes it while it is being sent"
                self._waiting.popleft()
        submission.sending = False

    # Reading

    def _arrived(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_soon(self._read)

    def _read(self) -> None:
        """Apply what is in the inbox, for as long as a turn may last."""
        self._scheduled = False
        channel = self._channel
        if channel is None or channel.closed:
            return
        transfer = channel.state
        if transfer is not None and transfer.founded and not self.generation:
            self.generation = self._own_generation
        until = self._clock.now() + TURN_S_MAX
        while channel.inbox:
            sender = channel.inbox[0].sender
            try:
                messages = channel.take()
            except Exception:
                log.exception("the log %r is left: its owner could not take the state of another member", self.name)
                self.on_failed()
                return
            self._apply(sender, [(message.id[1], message.body) for message in messages])
            if channel.must_report:
                self._dispatch.consumed(channel)
            if channel.inbox and self._clock.now() > until:
                self._arrived()
                break
        self.on_ready()

    def _apply(self, sender: int, messages: list[tuple[int, object]]) -> None:
        commands: list[bytes] = []
        own: list[Submission] = []
        mine = self._channel is not None and sender == self._channel.me
        for number, body in messages:
            submission = self._sent.pop(number, None) if mine else None
            if submission is not None:
                submission.offset = len(commands)
                own.append(submission)
            if isinstance(body, bytes):
                commands.append(body)
            elif isinstance(body, list) and all(isinstance(one, bytes) for one in body):
                commands += body
            elif body is not None:
                self.malformed += 1
        index = self.applied
        self.applied += len(commands)
        if commands:
            self.on_commit(index, commands)
        for submission in own:
            self._bytes -= len(submission.encoded)
            submission.done(self.applied if submission.barrier else index + submission.offset, None)

    # State

    def snapshot(self) -> bytes | Iterable[bytes]:
        head = _head.pack(self.generation, self.applied)
        if self.on_snapshot_in_pieces is not None:
            return chain([head], self.on_snapshot_in_pieces())
        return head + self.on_snapshot()

    def restore(self, state: bytes) -> None:
        generation, index = _head.unpack_from(state)
        if self.generation not in (0, generation):
            self.on_lost()
        self.generation = generation
        self.applied = index
        self.on_restore(index, state[_head.size :])

    def _go_on_older(self, change: ViewChange) -> None:
        """Make a new generation; members that go on with the same state in the same view compute the same number."""
        joined = b"".join(number.to_bytes(8, "big") for number in (self.generation, change.lineage, change.point))
        self.generation = int.from_bytes(blake2b(joined, digest_size=8).digest(), "big") >> 1 or 1

    def _passed_view(self, change: ViewChange) -> None:
        """If this member was cut off, the commands that it had sent are uncertain."""
        if not change.continues:
            self._uncertain([number for number in self._sent if number < change.sent])

    def _passed_seen(self, change: ViewChange, seens: Seens) -> None:
        """The restored state holds what this member sent before its view, and some of what it sent in that view."""
        me = self._channel.me if self._channel is not None else 0
        runs: list[Seen] = [(me, 0, change.sent), *(run for run in seens.list() if run[0] == me)]
        self._uncertain([n for n in self._sent if any(first <= n < stop for _, first, stop in runs)])

    def _uncertain(self, numbers: list[int]) -> None:
        for number in numbers:
            submission = self._sent.pop(number)
            self._bytes -= len(submission.encoded)
            submission.done(-1, Uncertain(f"the log {self.name!r} may hold it or not: this member was cut off"))

    def validate(self) -> None:
        assert self._bytes == sum(len(s.encoded) for s in [*self._sent.values(), *self._waiting])
        assert len(self._sent) + len(self._waiting) <= COMMANDS_MAX
