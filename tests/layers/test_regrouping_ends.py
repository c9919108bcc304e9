"""Where a stream ends is told when everybody has it: then nobody is shown the next view who lacks something."""

import pluribus
from pluribus.layers.membership.words import Ends
from pluribus.runtime.bus import VIEWS
from pluribus.stack.events import Confirm, Confirmed
from tests.layers.alone import GROUP, Alone
from tests.layers.test_regrouping import answer, ends, two_changes


def waiting_for_others() -> Alone:
    alone, waiting = two_changes()

    def unstable(event):
        answer(alone, event)
        if hasattr(event, "unstable"):
            event.into[GROUP] = 5
            event.unstable.add(GROUP)

    alone.layer.tell_down = unstable
    alone.layer._progress(waiting[0])
    return alone


def test_the_end_waits_until_everybody_has_the_stream():
    alone = waiting_for_others()
    assert ends(alone) == [] and Confirm(GROUP, 0, 5) in alone.told_down
    alone.layer.event_up(Confirmed(GROUP, 0, 4))
    assert ends(alone) == []
    alone.layer.event_up(Confirmed(GROUP, 0, 5))
    assert [word.ends for frame in alone.down for word in frame.headers if isinstance(word, Ends)] == [[(GROUP, 5)]]
    assert Confirmed(GROUP, 0, 5) in alone.told_up, "others may wait for it too"


def test_during_a_change_of_the_view_no_end_is_told():
    alone = waiting_for_others()
    alone.layer._flushing = True
    alone.layer.event_up(Confirmed(GROUP, 0, 5))
    assert ends(alone) == []


def test_a_group_changes_while_messages_are_lost():
    async def main() -> None:
        async with pluribus.sim.world(members=4, seed=8, stack=VIEWS) as world:
            groups = [await bus.group("all") for bus in world.buses[:3]]
            for group in groups:
                await group.wait_for(3)
            world.set_link(pluribus.sim.Link(loss=0.3))
            for number in range(20):
                await groups[0].send(str(number))
            late = await world.buses[3].group("all")
            await groups[0].send("after")
            for group in groups:
                assert [(await group.receive(timeout=20)).body for _ in range(21)][-1] == "after"
            assert (await late.receive(timeout=20)).body == "after"

    pluribus.sim.run(main())
