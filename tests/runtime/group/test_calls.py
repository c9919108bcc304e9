"""Calls on real buses: what is exposed is called on every member, errors come back, a slow one holds up nobody."""

import asyncio
import dataclasses
import threading

import pytest

import pluribus
from pluribus.core.errors import AnswersLate, BadBody, NoMembers, Unanswered
from pluribus.core.frame import Frame
from pluribus.runtime.group import calls
from pluribus.wire.questions import CALL
from tests.harness import eventually, on_a_loop
from tests.runtime.group.test_asking import asked


@pluribus.register
@dataclasses.dataclass(frozen=True)
class Amount:
    cents: int


class Account:
    def __init__(self, name: str = "") -> None:
        self.name = name
        self.cents = 0
        self.order: list[int] = []
        self.gate = asyncio.Event()
        self.threads: set[int] = set()

    @pluribus.exposed
    async def deposit(self, amount: Amount, times: int = 1) -> Amount:
        self.cents += amount.cents * times
        return Amount(self.cents)

    @pluribus.exposed
    def balance(self) -> int:
        self.threads.add(threading.get_ident())
        return self.cents

    @pluribus.exposed
    async def slow(self) -> str:
        await self.gate.wait()
        return "at last"

    @pluribus.exposed
    async def note(self, number: int) -> None:
        await asyncio.sleep(0.001 if number % 3 else 0)
        self.order.append(number)

    @pluribus.exposed
    async def fail(self, why: str) -> None:
        raise ValueError(f"{self.name}: {why}")

    @pluribus.exposed
    async def strange(self) -> object:
        return object()

    async def secret(self) -> str:
        return "never"


@on_a_loop
async def test_a_method_is_called_on_every_member_that_serves():
    async with asked(3, order="total") as groups:
        accounts = [Account(str(number)) for number in range(2)]
        for group, account in zip(groups[1:], accounts, strict=True):
            group.serve(account)
        answers = await groups[0].call("deposit", Amount(5), times=3)
        assert [(a.body, a.sender) for a in answers] == [(Amount(15), a.sender) for a in answers]
        assert {a.sender for a in answers} == {group.me for group in groups[1:]}, "who serves nothing is not counted"
        assert [account.cents for account in accounts] == [15, 15]
        (only,) = await groups[0].call("balance", to=groups[2].me)
        assert only.body == 15 and threading.get_ident() not in accounts[1].threads
        assert len(await groups[1].call("balance", replies="majority")) == 2, "the caller serves too"
        assert not any(group._channel.inbox for group in groups), "calls are not messages"


@on_a_loop
async def test_what_goes_wrong_is_told_as_an_error_with_its_kind():
    async with asked(2) as (one, other):
        other.serve(Account("other"))
        (failed,) = await one.call("fail", "no money")
        assert failed.error.kind == "ValueError" and "other: no money" in str(failed.error)
        for method in ("secret", "unheard_of", "cents"):
            (unknown,) = await one.call(method)
            assert unknown.error.kind == "BadInput" and "is exposed" in str(unknown.error)
        (wrong,) = await one.call("deposit", 1, 2, 3)
        assert wrong.error.kind == "TypeError"
        (strange,) = await one.call("strange")
        assert strange.error.kind == "BadBody"
        with pytest.raises(Unanswered, match="ValueError"):
            await one.call("fail", "again", replies="one")
        with pytest.raises(BadBody):
            await one.call("fail", object())


@on_a_loop
async def test_nobody_serves_or_nobody_any_more():
    async with asked(2) as (one, other):
        with pytest.raises(NoMembers):
            await one.call("balance")
        other.serve(Account())
        assert len(await one.call("balance")) == 1
        other.serve(None)
        with pytest.raises(NoMembers):
            await one.call("balance")


@on_a_loop
async def test_named_methods_of_any_object_can_be_served():
    async with asked(2) as (one, other):
        other.serve([3, 1, 2], names=["count", "index"])
        assert (await one.call("index", 2))[0].body == 2
        assert (await one.call("append", 4))[0].error is not None


@on_a_loop
async def test_a_slow_method_holds_up_nobody():
    async with asked(2, own=False) as (one, other):
        account = Account()
        other.serve(account)
        slow = [asyncio.create_task(one.call("slow")) for _ in range(20)]
        await eventually(lambda: len(other._service._running) == 20)
        assert (await one.call("deposit", Amount(1)))[0].body == Amount(1)
        await one.send("a message")
        assert (await other.receive(5)).body == "a message"
        account.gate.set()
        assert [(await call)[0].body for call in slow] == ["at last"] * 20


@on_a_loop
async def test_calls_beyond_those_at_once_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calls, "CALLS_AT_ONCE_MAX", 4)
    async with asked(2, own=False) as (one, other):
        account = Account()
        other.serve(account)
        many = [asyncio.create_task(one.call("slow")) for _ in range(50)]
        await eventually(lambda: len(other._service._running) == 4)
        assert len(other._service._running) == 4
        account.gate.set()
        assert [(await call)[0].body for call in many] == ["at last"] * 50


@on_a_loop
async def test_one_by_one_keeps_the_order_to_the_end():
    async with asked(3, order="total") as groups:
        accounts = [Account() for _ in groups]
        for group, account in zip(groups, accounts, strict=True):
            group.serve(account, one_by_one=True)
        await asyncio.gather(*[group.call("note", number) for number in range(20) for group in groups])
        assert accounts[0].order == accounts[1].order == accounts[2].order
        assert len(accounts[0].order) == 60


@on_a_loop
async def test_calls_end_with_the_group_and_the_caller_hears_of_it():
    async with asked(2, own=False) as (one, other):
        other.serve(Account())
        calling = asyncio.create_task(one.call("slow"))
        await eventually(lambda: other._service._running)
        await other.close()
        with pytest.raises(NoMembers):
            await calling
        await eventually(lambda: not other._service._running)


@on_a_loop
async def test_a_method_may_close_its_own_group():
    async with asked(2, own=False) as (one, other):

        class Mortal:
            closed = False

            @pluribus.exposed
            async def stop(self) -> None:
                await other.close()
                self.closed = True

        mortal = Mortal()
        other.serve(mortal)
        with pytest.raises(NoMembers):
            await one.call("stop")
        await eventually(lambda: mortal.closed)


@on_a_loop
async def test_a_damaged_call_is_counted_and_harms_nobody():
    async with asked(2, own=False) as (one, other):
        other.serve(Account())
        other._channel.arrived(
            Frame(sender=int(one.me), group=other._channel.number, count=1, kind=CALL, bodies=[b"?"])
        )
        await eventually(lambda: other._channel.malformed == 1)
        assert (await one.call("balance"))[0].body == 0


@on_a_loop
async def test_a_time_out_leaves_the_call_running():
    async with asked(2, own=False) as (one, other):
        account = Account()
        other.serve(account)
        with pytest.raises(AnswersLate):
            await one.call("slow", timeout=0.05)
        account.gate.set()
        await eventually(lambda: one._channel.asking.late == 1)
