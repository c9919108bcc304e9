"""One machine through a line: on the keepers' log, from members with and without a keeper, and in members' memory."""

import asyncio
from typing import Any

import msgspec
import pytest

import pluribus
from pluribus.core.errors import BadInput, Closed, Refused, Uncertain
from pluribus.group.host.requests import Await, Order
from pluribus.runtime.machines import kinds
from pluribus.runtime.machines.machines import Machines
from pluribus.sim.machinery.jobs import Attach, Jobs, Put, Settle, Wait, Want
from tests.harness import eventually, new_bus, on_a_loop

Answer = tuple[str, Any]
encode = msgspec.msgpack.encode


class LaterJobs(Jobs):
    version = 2


@pytest.fixture(autouse=True)
def keepers_have_jobs(monkeypatch):
    monkeypatch.setitem(kinds.STYLE_MACHINES, "jobs", "pluribus.sim.machinery.jobs:Jobs")


def machines(bus):
    return bus._style(Machines)


async def line_to(bus, name="work", code=Jobs, **options):
    return await machines(bus).open(name, code, Answer, timeout=30.0, **options)


async def attached(line, consumer, owner, things=10):
    status, epoch = await line.call(encode(Attach(consumer, int(owner))))
    assert status == "attached"
    assert await line.call(encode(Want(consumer, epoch, 1, things))) == ("wanted", 0)
    return epoch


async def told(line, consumer, epoch, after=0):
    answer = await line.given(consumer, epoch, after)
    assert not answer.ended
    return [(one.thing, one.delivery, one.bodies) for one in answer.given], answer.given[-1].number


async def a_day_of_work(sender, worker, owner):
    """The same on every log: put, wait, be given, read, settle, attach again."""
    epoch = await attached(worker, 7, owner)
    waiting = asyncio.ensure_future(told(worker, 7, epoch))
    await asyncio.sleep(0)
    assert await sender.order([encode(Put(1, b"one")), encode(Put(2, b"two" * 1_000))]) == [("kept", 0)] * 2
    given, after = await waiting
    if len(given) == 1:  # each may come in its own answer
        more, after = await told(worker, 7, epoch, after)
        given += more
    assert given == [(1, 1, [b"one"]), (2, 1, [b"two" * 1_000])]
    assert await worker.call(encode(Settle(7, epoch, 1))) == ("settled", 0)
    assert msgspec.msgpack.decode(await sender.inspect(b"?")) == [0, 1, 0, 1]
    again = await attached(worker, 7, owner)
    assert (await worker.given(7, epoch, after)).ended, "the former epoch"
    assert (await told(worker, 7, again))[0] == [(2, 1, [b"two" * 1_000])], "what it holds, the same delivery"
    assert (await worker.given(7, again, after, wait_s=0.01)).given == [], "nothing is told twice"
    assert await worker.call(encode(Settle(7, epoch, 2))) == ("ended", 0)
    assert await worker.call(encode(Settle(7, again, 2))) == ("settled", 0)


@on_a_loop
async def test_on_the_own_keeper(tmp_path):
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db") as bus:
        line = await line_to(bus)
        await a_day_of_work(line, await line_to(bus), bus.me)


@on_a_loop
async def test_from_members_without_a_keeper(tmp_path):
    url = new_bus()
    async with (
        pluribus.connect(url, store=tmp_path / "kept.db") as keeper,
        pluribus.connect(url) as one,
        pluribus.connect(url) as other,
    ):
        await a_day_of_work(await line_to(one), await line_to(other), other.me)
        line = await line_to(one)
        await line.call(encode(Put(9, b"nine")))
        jobs = keeper.keeping.keeper.desk.host.named("work").machine
        handle = dict(jobs.kept())[9].handle
        assert await line.bodies([handle, (handle[0], handle[1], 5)]) == [b"nine", None]


@on_a_loop
async def test_in_the_memory_of_members_and_joiners():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        line = await line_to(one, durable=False)
        await a_day_of_work(line, await line_to(other, durable=False), other.me)
        await line.order([encode(Put(job, b"body %d" % job)) for job in range(10, 60)])
        async with pluribus.connect(url) as third:
            late = await line_to(third, durable=False)
            epoch = await attached(late, 8, third.me, 100)
            given, _ = await told(late, 8, epoch)
            assert given[:2] == [(20, 1, [b"body 20"]), (21, 1, [b"body 21"])], "ten are held already"
            copies = [machines(bus).group_host("work") for bus in (one, other, third)]
            await eventually(lambda: len({copy.host.named("work").machine.encode_part("jobs") for copy in copies}) == 1)
            for copy in copies:
                copy.validate()
        epoch = await attached(line, 5, one.me, 100)
        given, _ = await told(line, 5, epoch)
        assert given[0] == (20, 2, [b"body 20"]), "what the member that left held"


@on_a_loop
async def test_delays_in_memory_follow_a_clock_that_goes_on_while_nothing_happens():
    async with pluribus.connect(new_bus()) as bus:
        line = await line_to(bus, durable=False)
        host = machines(bus).group_host("work")
        host.log._time_at -= 3_600  # an hour ago
        before = host.log.now_us
        await line.call(encode(Wait(1, before + 200_000, b"soon")))
        jobs = host.host.named("work").machine
        assert list(jobs.hidden) == [1], "it is due in a while, not an hour ago"
        await eventually(lambda: list(jobs.jobs) == [1])
        assert host.log.time_us >= before + 200_000


@on_a_loop
async def test_machines_that_share_a_group_share_its_order():
    async with pluribus.connect(new_bus()) as bus:
        left = await line_to(bus, "left", durable=False, group="both")
        right = await line_to(bus, "right", durable=False, group="both")
        await left.call(encode(Put(1, b"x")))
        await right.call(encode(Put(1, b"y")))
        host = machines(bus).group_host("both").host
        assert [hosted.name for hosted in host.machines.values()] == ["left", "right"]
        with pytest.raises(BadInput, match="all durable machines share"):
            await line_to(bus, durable=True, group="both")


@on_a_loop
async def test_what_cannot_be_asked_says_why(tmp_path):
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db") as bus:
        with pytest.raises(Refused, match="has no code of 'jobs' in version 2"):
            await line_to(bus, code=LaterJobs)
        line = await line_to(bus)
        with pytest.raises(BadInput, match="there is no machine 'nowhere'"):
            await line.ask(Await("nowhere", 1, 1, 0))
        with pytest.raises(BadInput, match="hands nothing out"):
            await line.ask(Await("topics", 1, 1, 0))
        line.close()
        with pytest.raises(Closed, match="open it again"):
            await line.inspect(b"?")


@on_a_loop
async def test_who_waits_holds_its_lease_and_who_does_not_loses_it(tmp_path, monkeypatch):
    monkeypatch.setattr("pluribus.sim.machinery.jobs.LEASE_US", 1_500_000)
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db") as bus:
        line = await line_to(bus)
        waiting = asyncio.ensure_future(line.given(1, await attached(line, 1, 11), 0))
        await attached(line, 2, 22)
        jobs = bus.keeping.keeper.desk.host.named("work").machine
        await eventually(lambda: list(jobs.demands.consumers) == [1], 30)
        await line.call(encode(Put(1, b"x")))
        assert [one.thing for one in (await waiting).given] == [1]


@on_a_loop
async def test_a_member_without_the_code_of_a_machine_in_memory_is_told_which_one():
    url = new_bus()
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        line = await line_to(one, durable=False)
        await line.call(encode(Put(1, b"one")))
        later = await line_to(other, durable=False, code=LaterJobs)
        await eventually(lambda: machines(one).group_host("work") is None)
        for _ in range(2):
            with pytest.raises(
                Refused, match="this member has version 1 of the machine 'jobs', and version 2 is in use"
            ):
                await asyncio.wait_for(line.call(encode(Put(2, b"two"))), 10)
        epoch = await attached(later, 7, other.me)
        assert (await told(later, 7, epoch))[0] == [(1, 1, [b"one"])], "what the former version had"


@on_a_loop
async def test_commands_under_way_are_uncertain_when_their_host_is_left():
    async with pluribus.connect(new_bus()) as bus:
        line = await line_to(bus, durable=False)
        (host,) = machines(bus)._hosts.values()
        host.desk._log = Silent()
        asking = asyncio.ensure_future(host.desk.ask(Order(line.name, [encode(Put(1, b"one"))])))
        await asyncio.sleep(0)
        host.abandon()
        with pytest.raises(Uncertain, match="may have been done"):
            await asking


class Silent:
    """A log from which no answer comes."""

    def submit_many(self, commands, done, machine=0):
        pass
