"""Software buses and the access list: what clients may do on them, with rules, with roles, and with tickets."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import pluribus
from pluribus.core.errors import Refused
from pluribus.runtime.styles.slots.buses import Slots
from pluribus.slots.check import plan_of
from pluribus.slots.guests import GuestWords
from pluribus.slots.keys import verifier
from pluribus.slots.plan import Connection, End
from pluribus.slots.words import AddRoute, Advertise, Dropout, Enroll, KeepAlive, ReqMap, SendData, Ticket
from tests.harness import eventually
from tests.runtime.clients.test_client import served, url_of
from tests.runtime.styles.access.test_access import PASSWORD, refusing, until

PLAN = f"""bus plant
role chief "{verifier("open", b"s" * 16, 5)}"
role guard listed
see guard, chief
reconfigure guard, chief
slot gauge {{ out level }}
slot valve {{ in set }}
slot door {{ enrol guard, chief in set }}
gauge.level -> valve.set
"""


@asynccontextmanager
async def plant(tmp_path, by):
    """A bus with a keeper, an access list and a software bus; its member, and the URL of its door."""
    async with served(f"plant-{tmp_path.name}", store=tmp_path / "a.db") as keeper:
        await keeper.access.add_user("ann", password=PASSWORD)
        await allow(keeper, "slots:plant", "join")
        await keeper.slots(plan_of(PLAN), by=by)
        yield keeper, url_of(keeper)


async def allow(keeper, destination, verb):
    """A rule for ann that counts at the keeper's door."""
    style, _, name = destination.partition(":")
    await keeper.access.add_rule("ann", destination, verb)

    async def known():
        return (await keeper.guard.current()).allows("ann", (style, name, verb))

    await refusing(keeper)
    await until(known)


@pytest.mark.parametrize("by", ["router", "replica"])
def test_a_client_may_do_on_a_software_bus_what_rules_allow(by, tmp_path):
    async def scenario():
        async with plant(tmp_path, by) as (keeper, url), pluribus.connect(url, user="ann", password=PASSWORD) as ann:
            with pytest.raises(Refused, match="no rule allows slots:plant/gauge enrol"):
                await ann.enroll("gauge", on="plant")
            await allow(keeper, "slots:plant/gauge", "enrol")
            gauge = await ann.enroll("gauge", on="plant")
            valve = await keeper.enroll("valve", on="plant")
            await gauge.send("level", 7)
            message = await valve.port("set").receive(timeout=20)
            assert message.body == 7
            message.acknowledge()

            manager = await ann.communications()
            with pytest.raises(Refused, match="no rule allows slots:plant see"):
                await manager.show("plant")
            with pytest.raises(Refused, match="no rule allows slots:plant reconfigure"):
                await gauge.del_route("gauge.level", "valve.set")
            await allow(keeper, "slots:plant", "see")
            await allow(keeper, "slots:plant", "reconfigure")
            with pytest.raises(Refused, match=r"is shown to guard, chief: give key=, .* slot-role:plant/guard hold"):
                await manager.show("plant")  # the door lets it pass, and the file has its own say
            with pytest.raises(Refused, match="may not change routes: that is for guard, chief"):
                await gauge.del_route("gauge.level", "valve.set")
            assert (await manager.show("plant", key="open")).plan.name == "plant"

    asyncio.run(scenario())


@pytest.mark.parametrize("by", ["router", "replica"])
def test_the_access_list_gives_roles_of_the_file_and_takes_them(by, tmp_path):
    async def scenario():
        async with plant(tmp_path, by) as (keeper, url):
            for verb in ("enrol", "see", "reconfigure"):
                await allow(keeper, "slots:#", verb)
            async with pluribus.connect(url, user="ann", password=PASSWORD) as ann:
                with pytest.raises(Refused, match="slot 'door' is for guard, chief"):
                    await ann.enroll("door", on="plant")
                await allow(keeper, "slot-role:plant/guard", "hold")
                door = await ann.enroll("door", on="plant")
                await door.add_route("gauge.level", "door.set")
                await (await ann.communications()).show("plant")
                seat = (await (await keeper.communications()).show("plant", key="open")).occupants("door")[0]
                assert seat.roles == ("guard",)
                await keeper.access.remove_rule("ann", "slot-role:plant/guard", "hold")
                await eventually(lambda: door._station.group.closed, "who holds a role no more is cut off", 30)

    asyncio.run(scenario())


def test_a_client_is_no_router_without_a_rule(tmp_path):
    async def scenario():
        async with (
            plant(tmp_path, "router") as (keeper, url),
            pluribus.connect(url, user="ann", password=PASSWORD) as ann,
        ):
            with pytest.raises(Refused, match="slots:plant host"):
                await ann.slots(plan_of(PLAN))
            assert keeper._style(Slots).hosts[0].state == "running"

    asyncio.run(scenario())


def test_members_hold_what_only_the_list_gives():
    async def scenario():
        async with pluribus.connect("inproc://plant-members", name="one") as one:
            await one.slots(plan_of(PLAN))
            door = await one.enroll("door")
            await door.add_route("gauge.level", "door.set")

    asyncio.run(scenario())


def test_what_words_of_a_guest_need():
    words = GuestWords("slots/plant")
    connection = Connection(End("a", "o"), End("b", "i"))
    words.heard(Ticket(1, 77, "a", 1, (1, 1), plan_of(PLAN)))
    host, hub = ("slots", "plant", "host"), GuestWords("slots")
    wanted = [
        (Enroll(1, "valve"), [("slots", "plant/valve", "enrol")]),
        (AddRoute(1, 77, "a", connection), [("slots", "plant", "reconfigure")]),
        (AddRoute(1, 78, "a", connection), [host, ("slots", "plant", "reconfigure")]),
        (SendData((1, 1), 77, End("a", "o"), (1, b"")), []),
        (SendData((1, 1), 78, End("a", "o"), (1, b"")), [host]),
        (Dropout(78, "a"), [host]),
        (KeepAlive(1), [host]),
        (Ticket(1, 78, "a", 1, (1, 1), plan_of(PLAN)), [host]),
    ]
    assert [list(words.needs(word)) for word, _ in wanted] == [needs for _, needs in wanted]
    assert list(hub.needs(ReqMap(1, "plant"))) == [("slots", "plant", "see")]
    assert list(hub.needs(ReqMap(1, "plant", hand_over=True))) == [("slots", "plant", "reconfigure")]
    assert list(hub.needs(Advertise("plant", 1, "router", False, 1, 1))) == [("slots", "plant", "host")]
    claimed = Enroll(1, "valve", claims=("guard", "chief"))
    assert words.claims(claimed)["guard"] == ("slot-role", "plant/guard", "hold")
    assert words.with_claims(claimed, ["guard"]).claims == ("guard",)
    assert words.with_claims(Enroll(1, "valve"), []).claims == (), "no client passes for a member"
