"""Users' own state machines on the keepers' log: done once, on disk, with agreed code."""

import asyncio

import pytest

import pluribus
from pluribus.core.errors import BadInput, GroupMismatch, NotPrimary, Refused, Uncertain
from pluribus.group.host.user import hosted
from pluribus.runtime.keepers import durable_replica
from tests.harness import eventually, new_bus, on_a_loop
from tests.runtime.group.test_replica import Ledger, balance


class Asked(Ledger):
    """It answers questions, too."""

    def query(self, question: bytes) -> bytes:
        return str(self.accounts[question.decode()]).encode()


class Raised(Asked):
    version = 2


@on_a_loop
async def test_a_machine_survives_the_process_that_kept_it(tmp_path):
    path, url = tmp_path / "kept.db", new_bus()
    async with pluribus.connect(url, store=path, machines={"ledger": Asked}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True)
        assert await ledger.call(b"anna 10") == b"10"
        with pytest.raises(Refused, match="ValueError: anna has not that much"):
            await ledger.call(b"anna -11")
        assert await ledger.query(b"anna") == b"10"
        for nobody in (b"nobody", b""):
            with pytest.raises(Refused, match="KeyError"):
                await ledger.query(nobody)
        again = await bus.replica("shop", "ledger", durable=True)
        assert again is ledger
        with pytest.raises(GroupMismatch, match="open as a 'ledger'"):
            await bus.replica("shop", "other", durable=True)
    async with pluribus.connect(url, store=path, machines={"ledger": Asked}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True)
        assert await ledger.read(balance("anna")) == 10
        assert await ledger.call(b"anna 5") == b"15"


@on_a_loop
async def test_members_without_a_store_call_and_ask_but_do_not_look_inside(tmp_path):
    url = new_bus()
    async with (
        pluribus.connect(url, store=tmp_path / "kept.db", machines={"Asked": Asked}),
        pluribus.connect(url) as member,
    ):
        ledger = await member.replica("shop", Asked, durable=True)
        await asyncio.gather(*(ledger.call(b"anna 1") for _ in range(50)))
        assert await ledger.query(b"anna") == b"50"
        with pytest.raises(BadInput, match="runs at the keepers, and this process keeps none"):
            await ledger.read(balance("anna"))
        with pytest.raises(BadInput, match="give an object, or durable=True"):
            await member.replica("shop", Asked)


@on_a_loop
async def test_a_call_with_the_same_identity_is_done_once_whoever_makes_it(tmp_path):
    url = new_bus()
    async with (
        pluribus.connect(url, store=tmp_path / "kept.db", machines={"ledger": Asked}) as bus,
        pluribus.connect(url) as member,
    ):
        ledger = await bus.replica("shop", "ledger", durable=True)
        id = ledger.new_id()
        assert await ledger.call(b"anna 7", id=id) == b"7"
        elsewhere = await member.replica("shop", "ledger", durable=True)
        assert await elsewhere.call(b"anna 7", id=id) == b"7"
        assert await ledger.query(b"anna") == b"7"


@on_a_loop
async def test_without_an_answer_a_call_is_uncertain_and_can_be_repeated(tmp_path, monkeypatch):
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db", machines={"ledger": Asked}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True)
        keeper = bus.keeping.keeper.keeper
        with monkeypatch.context() as patch:
            patch.setattr(keeper, "submit_many", lambda commands, done, machine=0: None)
            with pytest.raises(Uncertain) as lost:
                await asyncio.wait_for(ledger.call(b"anna 7", timeout=0.2), 5)
        assert await ledger.call(b"anna 7", id=lost.value.id) == b"7"


@on_a_loop
async def test_a_machine_is_made_when_every_voter_has_its_code(tmp_path):
    url = new_bus()
    async with (
        pluribus.connect(url, store=tmp_path / "a.db", machines={"ledger": Asked}) as first,
        pluribus.connect(url, store=tmp_path / "b.db", votes=True) as second,
    ):
        await eventually(lambda: len(first.keeping.keeper.keeper.voters) == 2)
        with pytest.raises(Refused, match="has no code of 'ledger' in version 1: every voter needs it"):
            await first.replica("shop", "ledger", durable=True)
        await second.close()
    async with (
        pluribus.connect(url, store=tmp_path / "b.db", votes=True, machines={"ledger": Asked}) as second,
        pluribus.connect(url, store=tmp_path / "a.db", machines={"ledger": Asked}) as first,
    ):
        other = second.keeping.keeper.desk.host
        await eventually(lambda: "ledger" in other.announced(second.keeping.keeper.keeper.id))
        ledger = await first.replica("shop", "ledger", durable=True)
        assert await ledger.call(b"anna 1") == b"1"


@on_a_loop
async def test_a_learner_without_the_code_stores_and_does_not_serve(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, store=tmp_path / "a.db", machines={"ledger": Asked}) as first:
        ledger = await first.replica("shop", "ledger", durable=True)
        async with pluribus.connect(url, store=tmp_path / "b.db") as learner:
            keeper = learner.keeping.keeper
            await eventually(lambda: keeper.keeper.seat.halted)
            assert "no version of the machine 'ledger'" in keeper.keeper.seat.halted and not keeper.ready
            leading, halted = await first.keepers.ls()
            assert (leading.why, halted.health) == ("", "whole")
            assert halted.why.endswith("and version 1 is in use: start it with that code")
            assert await ledger.call(b"anna 1") == b"1"
            await eventually(lambda: keeper.keeper.ledger.durable == first.keeping.keeper.keeper.ledger.end)


@on_a_loop
async def test_a_later_version_takes_over_the_state(tmp_path):
    path, url = tmp_path / "kept.db", new_bus()
    async with pluribus.connect(url, store=path, machines={"ledger": Asked}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True)
        await ledger.call(b"anna 10")
        with pytest.raises(Refused, match="in version 2"):
            await bus.replica("other", "ledger", durable=True, version=2)
    async with pluribus.connect(url, store=path, machines={"ledger": Raised}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True, version=2)
        assert await ledger.query(b"anna") == b"10"
        assert isinstance(bus.keeping.machine_of("shop"), Raised)


class Counter:
    version = 1

    def __init__(self) -> None:
        self.count = 0

    def apply(self, index: int, command: bytes) -> bytes:
        self.count += int(command)
        return b"%d" % self.count

    def query(self, question: bytes) -> bytes:
        return b"%d" % self.count

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, state: bytes) -> None:
        self.count = int(state or 0)


class Doubling(Counter):
    """From version 2 on everything counts twice."""

    version = 2

    def apply(self, index: int, command: bytes) -> bytes:
        return super().apply(index, b"%d" % (int(command) * (2 if self.version >= 2 else 1)))


@on_a_loop
async def test_what_was_done_in_one_version_means_the_same_under_the_code_of_the_next(tmp_path):
    path, url = tmp_path / "kept.db", new_bus()
    async with pluribus.connect(url, store=path, machines={"counter": Counter}) as bus:
        assert await (await bus.replica("visits", "counter", durable=True)).call(b"5") == b"5"
    async with pluribus.connect(url, store=path, machines={"counter": Doubling}) as bus:
        visits = await bus.replica("visits", "counter", durable=True)
        assert await visits.query(b"") == b"5", "what is done again at opening"
        assert await visits.call(b"1") == b"6", "other keepers may have the former code yet"
        assert await bus.replica("visits", "counter", durable=True, version=2) is visits
        assert await visits.call(b"1") == b"8"
    async with pluribus.connect(url, store=path, machines={"counter": Doubling}) as bus:
        visits = await bus.replica("visits", "counter", durable=True)
        assert await visits.query(b"") == b"8"


@on_a_loop
async def test_keepers_with_former_and_later_code_do_the_same_until_all_have_the_later_one(tmp_path):
    url = new_bus()
    former = pluribus.connect(url, store=tmp_path / "a.db", votes=True, machines={"counter": Counter})
    later = pluribus.connect(url, store=tmp_path / "b.db", votes=True, machines={"counter": Doubling})
    async with former as one, later as other:
        await eventually(lambda: len(one.keeping.keeper.keeper.voters) == 2)
        visits = await one.replica("visits", "counter", durable=True)
        assert await visits.call(b"5") == b"5"
        await eventually(lambda: [bus.keeping.machine_of("visits").count for bus in (one, other)] == [5, 5])
        with pytest.raises(Refused, match="has no code of 'counter' in version 2"):
            await other.replica("visits", "counter", durable=True, version=2)


class Unable(Counter):
    version = 2

    def restore(self, state: bytes) -> None:
        if self.version > 1:
            raise ValueError("this is no state of mine")
        super().restore(state)


@on_a_loop
async def test_a_version_that_cannot_take_over_the_state_is_refused_and_stops_no_keeper(tmp_path):
    path, url = tmp_path / "kept.db", new_bus()
    async with pluribus.connect(url, store=path, machines={"counter": Unable}) as bus:
        visits = await bus.replica("visits", "counter", durable=True)
        assert await visits.call(b"5") == b"5"
        with pytest.raises(Refused, match="cannot take over the state of version 1: ValueError: this is no"):
            await bus.replica("visits", "counter", durable=True, version=2)
        assert await visits.call(b"1") == b"6"
        await bus.publish("t", 1, durable=True)
        shown = {machine.name: machine.version for machine in (await bus.keepers.ls())[0].machines}
        assert shown["visits"] == 1


class Tabled(pluribus.TableMachine):
    version = 2

    def apply(self, index: int, command: bytes) -> bytes:
        self.table["count"] = count = self.table.get("count", 0) + int(command)
        return b"%d" % count


@on_a_loop
async def test_a_plain_machine_does_not_become_a_table_unnoticed(tmp_path, monkeypatch):
    path, url = tmp_path / "kept.db", new_bus()
    async with pluribus.connect(url, store=path, machines={"counter": Counter}) as bus:
        visits = await bus.replica("visits", "counter", durable=True)
        await visits.call(b"5")
        host = bus.keeping.keeper.desk.host
        monkeypatch.setitem(host._codes, "counter", hosted("counter", Tabled))
        bus.keeping.keeper.desk.tending._announce()
        await eventually(lambda: host.announced(bus.keeping.keeper.keeper.id).get("counter") == 2)
        with pytest.raises(Refused, match="is the state of a plain machine, and its class is a TableMachine one"):
            await bus.replica("visits", "counter", durable=True, version=2)
        assert await visits.call(b"1") == b"6"


def test_without_a_loop(tmp_path):
    with (
        pluribus.sync.connect(new_bus(), store=tmp_path / "kept.db", machines={"ledger": Asked}) as bus,
        bus.replica("shop", "ledger", durable=True) as ledger,
    ):
        assert ledger.call(b"anna 10") == b"10"
        assert ledger.query(b"anna") == b"10"
        assert ledger.read(balance("anna")) == 10


@on_a_loop
async def test_who_looks_after_keepers_sees_their_machines(tmp_path):
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db", machines={"ledger": Asked}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True)
        await ledger.call(b"anna 10")
        (keeper,) = await bus.keepers.ls()
        shown = {machine.name: (machine.kind, machine.version, machine.commands) for machine in keeper.machines}
        assert shown["shop"] == ("ledger", 1, 1) and shown["topics"][:2] == ("topics", 1)


@pytest.mark.parametrize("kind", ["topics", "consumer-group", "queue", "space", "access", "transactions"])
def test_a_kind_of_our_own_is_no_name_for_yours(tmp_path, kind):
    """Keepers would run your code for our machines."""

    async def scenario():
        await pluribus.connect(new_bus(), store=tmp_path / "kept.db", machines={kind: Asked})

    with pytest.raises(BadInput, match=f"'{kind}' is a kind of machine of Pluribus itself"):
        asyncio.run(scenario())


@on_a_loop
async def test_what_an_earlier_attempt_may_have_done_is_uncertain_whatever_became_of_the_last(tmp_path, monkeypatch):
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db", machines={"ledger": Asked}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True)
        asked = []

        async def ask(request):
            asked.append(request)
            raise NotPrimary("nobody leads") if len(asked) > 1 else Uncertain("it was done or not")

        with monkeypatch.context() as patch:
            patch.setattr(bus.keeping, "ask", ask)
            with pytest.raises(Uncertain, match="it was done or not; asked again: nobody leads") as lost:
                await ledger.call(b"anna 7", timeout=0.2)
            assert len(asked) > 1
            with pytest.raises(NotPrimary):
                await ledger.call(b"anna 1", timeout=0.01)
        assert list(ledger._unsettled) == [lost.value.id[1]], "what was certainly not done is over"
        assert await ledger.call(b"anna 7", id=lost.value.id) == b"7"
        assert not ledger._unsettled


@on_a_loop
async def test_calls_without_an_answer_are_remembered_up_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(durable_replica, "UNSETTLED_MAX", 3)
    async with pluribus.connect(new_bus(), store=tmp_path / "kept.db", machines={"ledger": Asked}) as bus:
        ledger = await bus.replica("shop", "ledger", durable=True)
        ids = [ledger.new_id() for _ in range(5)]
        await asyncio.gather(*(ledger.call(b"anna 1") for _ in range(10)))
        ledger.validate()
        assert list(ledger._unsettled) == [sequence for _, sequence in ids[2:]]
        with pytest.raises(Uncertain, match="forgot"):
            await ledger.call(b"anna 1", id=ids[0])
        assert await ledger.call(b"anna 1", id=ids[2]) == b"11"
