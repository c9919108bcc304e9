"""Semantic order against an oracle that rescans everything it knows after every batch."""

from collections import Counter

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pluribus.core.frame import Ahead, Frame, Parents
from pluribus.core.ids import ALL, MessageId
from pluribus.layers.semantic import Semantic
from pluribus.layers.semantic.layer import Older
from pluribus.stack.events import Consumed
from tests.layers.alone import GROUP, Alone

ME, OTHERS, STRANGER = 11, (22, 33), 99


class Conversation(RuleBasedStateMachine):
    """One member reads what three send, in any order, through views that come and go. Parents are messages of any time,
    of nobody, or not yet written."""

    @initialize()
    def begin(self) -> None:
        self.member = Alone(Semantic(), ME)
        self.view = 0
        self.members: tuple[int, ...] = (ME, *OTHERS)
        self.next = dict.fromkeys(self.members, 0)
        self.born: dict[MessageId, int] = {}
        self.on_the_way: dict[int, list[Frame]] = {member: [] for member in self.members}
        self.arrived: dict[MessageId, tuple[MessageId | None, bool]] = {}
        self.delivered: list[MessageId] = []
        self.orphans: set[MessageId] = set()
        self.expected: set[MessageId] = set()
        self.expected_orphans: set[MessageId] = set()
        self.top = dict.fromkeys(self.members, 0)
        self.floor = dict.fromkeys(self.members, 0)
        self.absent: set[MessageId] = set()
        self.came: Counter[int] = Counter()
        self.inbox: list[Frame] = []
        self._enter()

    def _enter(self) -> None:
        self.view += 1
        self.member.enter(self.view, self.members, "semantic")
        self._read()

    def _read(self) -> None:
        """What came up since: with the right bodies, marked or not."""
        for frame in self.member.up:
            header = frame.headers[-1] if frame.headers else Parents([None] * frame.count)
            bodies = frame.bodies if isinstance(frame.bodies, list) else msgspec.msgpack.decode(frame.bodies)
            assert frame.count == len(bodies) == len(header.of)
            for place, (body, parent) in enumerate(zip(bodies, header.of, strict=True)):
                message = (frame.sender, frame.first + place)
                assert body == b"%d" % message[1] and parent == self.arrived[message][0]
                if parent in self.arrived and place not in header.orphans:
                    assert parent in self.delivered, "no answer before what it answers"
                self.delivered.append(message)
                if place in header.orphans:
                    self.orphans.add(message)
            self.inbox.append(frame)
        self.member.up.clear()

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        sender = data.draw(st.sampled_from(self.members))
        count = data.draw(st.integers(1, 4))
        first = self.next[sender]
        known = sorted(self.born)
        soon = [(member, self.next[member] + ahead) for member in self.members for ahead in range(3)]
        choice = st.sampled_from([None, (STRANGER, 0), *soon, *known, *known])
        parents = [data.draw(choice) for _ in range(count)]
        older = [
            place
            for place, parent in enumerate(parents)
            if parent in self.born and self.born[parent] < self.view and data.draw(st.booleans())
        ]
        bodies = [b"%d" % number for number in range(first, first + count)]
        frame = Frame(
            sender=sender,
            group=GROUP,
            first=first,
            count=count,
            size=sum(map(len, bodies)),
            headers=[Parents(parents), Older(older)] if older else [Parents(parents)] if any(parents) else [],
            bodies=bodies if sender == ME else msgspec.Raw(msgspec.msgpack.encode(bodies)),
        )
        self.next[sender] += count
        self.born |= {(sender, number): self.view for number in range(first, first + count)}
        self.on_the_way[sender].append(frame)

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        senders = [sender for sender, frames in self.on_the_way.items() if frames]
        if senders:
            frames = self.on_the_way[data.draw(st.sampled_from(senders))]
            self._arrive(frames, data.draw(st.integers(0, len(frames) - 1)))

    def _arrive(self, frames: list[Frame], place: int) -> None:
        """Any of what is on its way; what comes before others of its sender says how far all is there."""
        start, frame = frames[0].first, frames.pop(place)
        of = frame.headers[0].of if frame.headers else [None] * frame.count
        older = frame.headers[1].places if len(frame.headers) > 1 else []
        for place, parent in enumerate(of):
            self.arrived[(frame.sender, frame.first + place)] = (parent, place in older)
        top = self.top[frame.sender]
        self.absent |= {(frame.sender, number) for number in range(top, start)}
        self.top[frame.sender] = max(top, start, frame.first + frame.count)
        self.came[frame.sender] += 1
        if frame.first != start:
            frame.headers.append(Ahead(start))
        self.member.layer.up(frame)
        self._read()
        self._expect()

    def _expect(self) -> None:
        while True:
            more = {message for message in self.arrived if message not in self.expected and self._may_go(message)}
            if not more:
                break
            self.expected |= more
        assert set(self.delivered) == self.expected and len(self.delivered) == len(self.expected)
        assert self.orphans >= self.expected_orphans
        others = self.orphans - self.expected_orphans
        assert all(self.arrived[message][0] in self.arrived for message in others), "they waited for each other"

    def _may_go(self, message: MessageId) -> bool:
        parent, older = self.arrived[message]
        if parent is None or parent in self.expected:
            return True
        if parent in self.arrived:
            return False
        if parent in self.absent or older:
            return True
        if parent[0] not in self.members or parent[1] < self.floor[parent[0]]:
            self.expected_orphans.add(message)
            return True
        return False

    @rule(data=st.data(), stay=st.sets(st.sampled_from(OTHERS)), gap=st.integers(0, 3))
    def change_view(self, data: st.DataObject, stay: set[int], gap: int) -> None:
        """Those who stay bring all that they sent; of those who go a part arrives; who comes back has gone on."""
        members = (ME, *sorted(stay))
        for sender in self.members:
            frames = self.on_the_way[sender]
            kept = len(frames) if sender in members else data.draw(st.integers(0, len(frames)))
            for _ in range(kept):
                self._arrive(frames, data.draw(st.integers(0, len(frames) - 1)))
            frames.clear()
        waiting = self.arrived.keys() - self.expected
        self.expected_orphans |= {message for message in waiting if self.arrived[message][0] not in self.arrived}
        self.expected |= waiting
        for member in set(members) - set(self.members):
            self.next[member] += gap
        self.members = members
        self.floor = self.top.copy()
        self._enter()
        self._expect()
        self._consume(len(self.inbox))
        reported = self._reported()
        assert all(reported[sender] == self.came[sender] for sender in members), "every frame is consumed once"
        self.came.clear()  # the windows of those who are gone are gone
        self.member.told_down.clear()

    @rule(count=st.integers(1, 5))
    def consume(self, count: int) -> None:
        self._consume(count)

    def _consume(self, count: int) -> None:
        """As a channel does it: several frames of a stream at once."""
        taken, self.inbox = self.inbox[:count], self.inbox[count:]
        frames: Counter[int] = Counter(frame.sender for frame in taken)
        for sender in frames:
            size = sum(frame.size for frame in taken if frame.sender == sender)
            self.member.layer.event_down(Consumed(sender, GROUP, ALL, frames[sender], size))

    def _reported(self) -> Counter[int]:
        reported: Counter[int] = Counter()
        for event in self.member.told_down:
            if isinstance(event, Consumed):
                reported[event.sender] += event.frames
        return reported

    @invariant()
    def valid(self) -> None:
        self.member.layer.validate()
        reported = self._reported()
        assert all(reported[sender] <= self.came[sender] for sender in reported)


Conversation.TestCase.settings = settings(stateful_step_count=60)
TestConversation = Conversation.TestCase
