"""Questions on real buses: every order and stack, answers to the asker alone, departures, time-outs, handlers."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import pluribus
from pluribus.core.errors import (
    AnswersLate,
    BadBody,
    BadInput,
    Closed,
    NoMembers,
    RemoteError,
    TooLarge,
    Unanswered,
)
from tests.harness import eventually, new_bus, on_a_loop, two_in_a_group

PROMISES = ["fifo", "none", "causal", "total", "semantic"]


@asynccontextmanager
async def asked(
    members: int = 3,
    stack: str = "views",
    own: bool = True,
    handler: Callable[[Any], Any] | None = None,
    **promises: Any,
) -> AsyncIterator[list[pluribus.Group]]:
    """Members in one group; all but the first, or with ``own`` all, handle what they get."""
    url = new_bus()
    async with AsyncExitStack() as opened:
        buses = [
            await opened.enter_async_context(pluribus.connect(url, name=f"m{number}", stack=stack))
            for number in range(members)
        ]
        groups = await asyncio.gather(*[bus.group("x", own=own, **promises) for bus in buses])
        for group in groups:
            await group.wait_for(members)
        handling = [asyncio.create_task(group.handle(handler)) for group in groups if handler is not None]
        yield groups
        for group in groups:
            await group.close()
        await asyncio.gather(*handling)


async def echo(message: pluribus.Message) -> Any:
    return {"heard": message.body}


@pytest.mark.parametrize("own", [True, False], ids=["own", "others"])
@pytest.mark.parametrize(
    ("stack", "promises"),
    [("best-effort", {}), *[("views", {"order": order}) for order in PROMISES], ("views", {"safe": True})],
    ids=["best-effort", *PROMISES, "safe"],
)
@on_a_loop
async def test_as_many_answers_as_were_asked_for(stack: str, promises: dict[str, Any], own: bool):
    async with asked(3, stack, own, echo, **promises) as groups:
        one = groups[0]
        for replies, count in (("all", 3 if own else 2), ("majority", 2), ("one", 1), (2, 2)):
            answers = await one.ask("well?", replies=replies)
            assert [answer.body for answer in answers] == [{"heard": "well?"}] * count
            assert len({answer.sender for answer in answers}) == count
            assert {answer.sender for answer in answers} <= set(one.view.members) - ({one.me} if not own else set())
        (answer,) = await one.ask(b"you", to=groups[2].me)
        assert (answer.sender, answer.body) == (groups[2].me, {"heard": b"you"})


@on_a_loop
async def test_a_question_is_read_like_any_message_and_answered_later_by_anybody_who_holds_it():
    async with asked(2, own=False) as (one, other):
        asking = asyncio.create_task(one.ask({"plain": [1]}, replies="one"))
        question = await other.receive(5)
        await one.send("a plain message")
        plain = await other.receive(5)
        assert (question.asks, question.body, question.sender) == (True, {"plain": [1]}, one.me)
        assert not plain.asks
        await question.reply("later")
        assert (await asking)[0].body == "later"
        with pytest.raises(BadInput, match="once"):
            await question.reply("again")
        with pytest.raises(BadInput, match="asks nothing"):
            await other.reply(plain, "why?")
        assert not one._channel.inbox, "answers never reach an inbox"


@on_a_loop
async def test_an_answer_that_cannot_travel_can_be_given_again():
    async with asked(2, own=False) as (one, other):
        asking = asyncio.create_task(one.ask("?"))
        question = await other.receive(5)
        with pytest.raises(BadBody):
            await question.reply(object())
        await question.reply("words")
        assert (await asking)[0].body == "words"


@on_a_loop
async def test_an_answer_that_does_not_fit_the_path_is_an_error_answer():
    async with two_in_a_group(own=False) as (one, other):

        async def too_long(message: pluribus.Message) -> bytes:
            return bytes(100_000)

        handling = asyncio.create_task(other.handle(too_long))
        answers = await one.ask(b"?", timeout=5)
        assert answers[0].error is not None and answers[0].error.kind == "TooLarge"
        handling.cancel()
        asking = asyncio.create_task(one.ask(b"again?", timeout=5))
        message = await other.receive(5)
        with pytest.raises(TooLarge):
            await message.reply(bytes(100_000))
        await message.reply(b"short")
        assert (await asking)[0].body == b"short"


@on_a_loop
async def test_questions_and_answers_may_be_larger_than_a_frame():
    async with asked(3, own=True, handler=echo) as groups:
        body = bytes(range(256)) * 2_000
        answers = await groups[1].ask(body)
        assert [answer.body["heard"] == body for answer in answers] == [True] * 3


@on_a_loop
async def test_many_questions_at_once():
    async with asked(3, own=False, handler=echo) as groups:
        asks = [group.ask(number) for number in range(200) for group in groups]
        found = await asyncio.gather(*asks)
        assert [answers[0].body["heard"] for answers in found] == [number for number in range(200) for _ in groups]
        assert all(len(answers) == 2 for answers in found)


@on_a_loop
async def test_those_who_leave_are_not_waited_for():
    async with asked(3, own=False) as (one, other, third):
        asking = asyncio.create_task(one.ask("?"))
        await (await other.receive(5)).reply("here")
        await third.close()
        answers = await asking
        assert [answer.sender for answer in answers] == [other.me] and answers.left == (third.me,)


@on_a_loop
async def test_too_few_members_to_begin_with_or_left():
    async with asked(2, own=False) as (one, other):
        with pytest.raises(NoMembers, match="wait_for"):
            await one.ask("?", replies=2)
        with pytest.raises(NoMembers):
            await one.ask("?", to=12345)
        asking = asyncio.create_task(one.ask("?", replies="majority"))
        await other.receive(5)
        await other.close()
        with pytest.raises(NoMembers):
            await asking
        with pytest.raises(NoMembers):
            await one.ask("?")


@on_a_loop
async def test_a_time_out_tells_what_came():
    async with asked(3, own=False) as (one, other, third):
        asking = asyncio.create_task(one.ask("?", timeout=0.3))
        await (await other.receive(5)).reply("here")
        with pytest.raises(AnswersLate, match=f"1 answers.*{third.me!r}") as late:
            await asking
        assert [answer.body for answer in late.value.answers] == ["here"]
        assert isinstance(late.value, TimeoutError)
        await (await third.receive(5)).reply("too late")
        await eventually(lambda: one._channel.asking.late == 1)
        assert not one._channel.asking.pending


@on_a_loop
async def test_what_handlers_raise_reaches_the_asker_with_its_kind():
    async def picky(message: pluribus.Message) -> str:
        if message.body == "bad":
            raise KeyError("unheard of")
        return "fine"

    async with asked(3, own=True, handler=picky) as groups:
        answers = await groups[0].ask("bad")
        assert [(a.error.kind, "unheard of" in str(a.error)) for a in answers] == [("KeyError", True)] * 3
        with pytest.raises(RemoteError, match="KeyError"):
            _ = answers[0].body
        with pytest.raises(Unanswered, match="KeyError") as failed:
            await groups[0].ask("bad", replies="one")
        assert len(failed.value.answers) == 3
        assert (await groups[0].ask("good", replies="one"))[0].body == "fine", "handling goes on after an error"


@on_a_loop
async def test_a_next_that_finds_nothing_is_an_error_like_any_other():
    def plain(message: pluribus.Message) -> Any:
        return next(iter(()))

    async with asked(2, own=False, handler=plain) as (one, other):
        other.serve(SimpleNamespace(plain=plain), ["plain"])
        for asking in (one.ask("?", timeout=5), one.call("plain", "!", timeout=5)):
            with pytest.raises(RemoteError, match="StopIteration"):
                _ = (await asking)[0].body


@on_a_loop
async def test_a_plain_function_answers_from_a_thread():
    threads: list[int] = []

    def slow(message: pluribus.Message) -> int:
        threads.append(threading.get_ident())
        return len(message.body)

    async with asked(2, own=False, handler=slow) as (one, _):
        assert (await one.ask("four"))[0].body == 4
        assert threading.get_ident() not in threads


@on_a_loop
async def test_a_handler_that_replies_itself_is_not_answered_for():
    async def itself(message: pluribus.Message) -> str:
        await message.reply("mine")
        return "ignored"

    async with asked(2, own=False, handler=itself) as (one, _):
        assert [answer.body for answer in await one.ask("?")] == ["mine"]


@on_a_loop
async def test_only_those_named_are_asked_though_all_hear_it():
    async with asked(3, own=True) as (one, other, third):
        asking = asyncio.create_task(one.ask("you there", of=[other.me]))
        heard = [await group.receive(5) for group in (one, other, third)]
        assert [message.asks for message in heard] == [False, True, False]
        await heard[1].reply("me?")
        assert [answer.sender for answer in await asking] == [other.me]
        with pytest.raises(BadInput, match="exclude each other"):
            await one.ask("?", to=other.me, of=[third.me])


@on_a_loop
async def test_a_closed_group_ends_its_questions():
    async with asked(2, own=False) as (one, other):
        asking = asyncio.create_task(one.ask("?"))
        question = await other.receive(5)
        await one.close()
        with pytest.raises(Closed):
            await asking
        with pytest.raises(Closed):
            await one.ask("?")
        await eventually(lambda: one.me not in other.view)
        await question.reply("to nobody")
        assert other._asker.unreachable == 1


@on_a_loop
async def test_an_asker_that_is_cancelled_leaves_nothing_behind():
    async with asked(2, own=False) as (one, other):
        asking = asyncio.create_task(one.ask("?", timeout=None))
        await other.receive(5)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not one._channel.asking.pending
