"""The window against a naive oracle: whatever is lost, repeated or reordered, and whoever reads when.

The oracle knows what was admitted, by stream and number, and checks what each receiver reads against it. Presence is
left in peace, so that members stay members; everything else may happen to every datagram.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pluribus.core.ids import ALL
from pluribus.layers import window
from pluribus.layers.window import FRAME_CHARGE_BYTES, PROBE_S
from tests.harness import Medium
from tests.layers.talkers import Talker, is_presence, met

WINDOW_BYTES = 61_440  # one batch, so that it is full most of the time
STACK = f"transport | presence | window(bytes_max={WINDOW_BYTES}) | groups"
NAMES = "abc"
BODY_BYTES_MAX = 10_000
MOST_UNREAD_BYTES = WINDOW_BYTES + BODY_BYTES_MAX + FRAME_CHARGE_BYTES
"""One message is admitted while the window is open at all, so one frame may reach beyond the limit."""

names = st.sampled_from(NAMES)
places = st.integers(0, 1 << 16)


class WindowMachine(RuleBasedStateMachine):
    @initialize(own=st.booleans())
    def meet(self, own: bool) -> None:
        self._initial_bytes = window.INITIAL_BYTES
        window.INITIAL_BYTES = WINDOW_BYTES
        self.medium = Medium()
        self.talkers = {name: Talker(self.medium, name, STACK, own=own) for name in NAMES}
        self.own = own
        met(self.medium, *self.talkers.values())
        self.is_presence = is_presence(self.talkers["a"])
        # The oracle: every admitted message by its identity, and for whom it was.
        self.sent: dict[tuple[int, int], tuple[bytes, int]] = {}
        self.order: dict[tuple[int, int], list[int]] = {}

    def pump_presence(self) -> None:
        """Hellos arrive at once; everything else waits for the rules below."""
        for at in reversed(range(len(self.medium.waiting))):
            if self.is_presence(self.medium.waiting[at][0]):
                self.medium.deliver_next(at)

    @rule(name=names, to=st.none() | names, count=st.integers(1, 30), size=st.integers(0, BODY_BYTES_MAX))
    def send(self, name: str, to: str | None, count: int, size: int) -> None:
        talker = self.talkers[name]
        target = ALL if to is None else self.talkers[to].me
        for _ in range(count):
            body = (b"%d/" % len(self.sent)).ljust(size, b".")
            number = talker.send(body, target)
            if number is None:
                break
            identity = (talker.me, number)
            assert identity not in self.sent, "an identity was used twice"
            self.sent[identity] = (body, target)
            self.order.setdefault((talker.me, target), []).append(number)
        talker.turn()

    @precondition(lambda self: self.medium.waiting)
    @rule(at=places)
    def deliver(self, at: int) -> None:
        self.medium.deliver_next(at % len(self.medium.waiting))

    @precondition(lambda self: self.medium.waiting)
    @rule(at=places)
    def lose(self, at: int) -> None:
        del self.medium.waiting[at % len(self.medium.waiting)]

    @precondition(lambda self: self.medium.waiting)
    @rule(at=places)
    def repeat(self, at: int) -> None:
        self.medium.waiting.append(self.medium.waiting[at % len(self.medium.waiting)])

    @rule()
    def deliver_all(self) -> None:
        self.medium.deliver()

    @rule(name=names)
    def lose_all_of_one(self, name: str) -> None:
        self.pump_presence()
        self.medium.waiting = [entry for entry in self.medium.waiting if entry[1] != (name, 0)]

    @rule(name=names, frames=st.integers(1, 20))
    def read(self, name: str, frames: int) -> None:
        self.talkers[name].read(frames)

    @rule(seconds=st.floats(0, 2.5 * PROBE_S))
    def wait(self, seconds: float) -> None:
        self.medium.clock.advance(seconds, self.pump_presence)

    @invariant()
    def layers_hold_their_invariants(self) -> None:
        if not hasattr(self, "talkers"):
            return
        self.pump_presence()
        for talker in self.talkers.values():
            talker.stack.validate()

    @invariant()
    def never_more_unconsumed_than_granted(self) -> None:
        if not hasattr(self, "talkers"):
            return
        for reader in self.talkers.values():
            unread: dict[tuple[int, int], int] = {}
            for frame in reader.channel.inbox:
                key = (frame.sender, frame.to)
                unread[key] = unread.get(key, 0) + frame.size + FRAME_CHARGE_BYTES
            assert all(size <= MOST_UNREAD_BYTES for size in unread.values()), unread

    @invariant()
    def what_is_read_was_sent_to_the_reader_once_and_in_order(self) -> None:
        if not hasattr(self, "talkers"):
            return
        for reader in self.talkers.values():
            last: dict[tuple[int, int], int] = {}
            for message in reader.got:
                body, target = self.sent[message.id]
                assert body == message.body
                assert target in (ALL, reader.me)
                assert self.own or message.sender != reader.me
                key = (message.sender, target)
                assert message.id[1] > last.get(key, -1), "twice, or after a later one"
                last[key] = message.id[1]

    def teardown(self) -> None:
        """No more faults, and everybody reads: nobody may be stuck, and what is missing was counted as lost."""
        if not hasattr(self, "talkers"):
            return
        try:
            self.calm_down()
        finally:
            window.INITIAL_BYTES = self._initial_bytes

    def calm_down(self) -> None:
        for _ in range(8):
            self.medium.run(1.1 * PROBE_S)
            for talker in self.talkers.values():
                talker.read()
        for talker in self.talkers.values():
            for target in (ALL, *(other.me for other in self.talkers.values() if other is not talker)):
                number = talker.send(b"last", target)
                assert number is not None, f"{talker.name} is stuck: {talker.stats('window')}"
                self.sent[(talker.me, number)] = (b"last", target)
                self.order.setdefault((talker.me, target), []).append(number)
        self.medium.run(0.0)
        for reader in self.talkers.values():
            reader.read()
        self.what_is_read_was_sent_to_the_reader_once_and_in_order()
        for reader in self.talkers.values():
            assert reader.window.lost == self.missing(reader)
            assert reader.window.over == reader.window.ignored == 0

    def missing(self, reader: Talker) -> int:
        """By the oracle: what the reader did not get of each stream, from the first that it got."""
        missing = 0
        for (sender, target), numbers in self.order.items():
            if target not in (ALL, reader.me) or (sender == reader.me and not self.own):
                continue
            got = {message.id[1] for message in reader.got if message.sender == sender}
            heard = [number in got for number in numbers]
            assert heard[-1], "the last message, in a calm network"
            missing += heard[heard.index(True) :].count(False)
        return missing


WindowMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_the_window_under_every_disorder = WindowMachine.TestCase
