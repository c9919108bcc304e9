"""Total order on streams that run at any relative speed, against a dumb oracle: one list for all."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL, MessageId
from pluribus.layers.total import Total
from tests.layers.alone import GROUP, Alone

MEMBERS = (11, 12, 13)


class TotalMachine(RuleBasedStateMachine):
    """Three members; between each two a stream that keeps its own order and no other."""

    @initialize()
    def begin(self) -> None:
        self.members = {me: Alone(Total(), me) for me in MEMBERS}
        self.streams: dict[tuple[int, int], deque[Frame]] = {(a, b): deque() for a in MEMBERS for b in MEMBERS}
        self.delivered: dict[int, list[MessageId]] = {me: [] for me in MEMBERS}
        self.count = dict.fromkeys(MEMBERS, 0)
        self.controls = dict.fromkeys(MEMBERS, 0)
        for member in self.members.values():
            member.enter(1, MEMBERS, "total")
        self.carry()

    def carry(self) -> None:
        """What the layers passed down sets out; what they passed up is delivered."""
        for me, member in self.members.items():
            member.layer.settle()
            sent, member.down[:] = member.down[:], []
            for frame in sent:
                if frame.group != GROUP:
                    frame.first = self.controls[me]
                    self.controls[me] += frame.count
                for other in MEMBERS if frame.to == ALL else (frame.to,):
                    self.streams[(me, other)].append(frame.copy())
            came, member.up[:] = member.up[:], []
            for frame in came:
                for number in range(frame.first, frame.first + frame.count):
                    self.deliver(me, (frame.sender, number))
            member.layer.validate()

    def deliver(self, me: int, message: MessageId) -> None:
        assert message not in self.delivered[me], "once"
        self.delivered[me].append(message)
        self.look(me)

    def look(self, me: int) -> None:
        """The oracle: of two members, one delivered a beginning of what the other did."""
        mine = self.delivered[me]
        for other in self.delivered.values():
            shared = min(len(mine), len(other))
            assert mine[:shared] == other[:shared]

    @rule(me=st.sampled_from(MEMBERS), count=st.integers(1, 3))
    def somebody_sends(self, me: int, count: int) -> None:
        first = self.count[me]
        self.count[me] += count
        self.members[me].layer.down(Frame(sender=me, group=GROUP, first=first, count=count, size=count))
        self.carry()

    @precondition(lambda self: any(self.streams.values()))
    @rule(data=st.data())
    def a_frame_arrives(self, data: st.DataObject) -> None:
        self.arrive(data.draw(st.sampled_from([ends for ends, stream in self.streams.items() if stream])))

    def arrive(self, ends: tuple[int, int]) -> None:
        self.members[ends[1]].layer.up(self.streams[ends].popleft())
        self.carry()

    def teardown(self) -> None:
        if not hasattr(self, "streams"):
            return
        while waiting := [ends for ends, stream in self.streams.items() if stream]:
            self.arrive(waiting[0])
        everything = {(me, number) for me in MEMBERS for number in range(self.count[me])}
        for me in MEMBERS:
            assert set(self.delivered[me]) == everything, "nothing waits for ever"


TotalMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40)
test_total_order_at_any_speed = TotalMachine.TestCase
