"""Sending: calls that may be over at once, in Python and in C. Both answer alike."""

import asyncio
import gc
import inspect
import sys
import weakref
from itertools import count, repeat
from types import ModuleType

import pytest

from tests._speed.both_ends import both, brought


def encoded(body):
    if body == "bad":
        raise ValueError("bad body")
    return body.encode()


def sender(kind: ModuleType, typed: type = bytes, solo: str | None = None):
    """An end with a batch that takes three bodies, and says what came to the coroutine itself."""

    class Batch(kind.OpenBatch):
        __slots__ = ()

    class Sender(kind.End):
        async def send(self, body, to=None):
            """Sends it."""
            return await self._either("sent", (body,), body, to is None)

        async def publish(self, topic, body, retain=False):
            batch = self._open
            known = topic == batch.solo or (batch.solo is None and topic in batch.places)
            place = batch.places[topic] if known and batch.solo is None else None
            return await self._either("published", (topic, body), body, known and not retain, place)

        async def _either(self, how, what, body, usual, place=None):
            batch = self._open
            if usual and batch is not None and type(body) is batch.type:
                ready = body if type(body) is bytes else encoded(body)
                if len(ready) <= batch.alike:
                    for found in batch.ids:
                        batch.pending.append(ready)
                        if place is not None:
                            batch.of.append(place)
                        return found
            self.slow.append(what)
            await asyncio.sleep(0)
            return how

        send = kind.sends(send, encoded)
        publish = kind.publishes(publish, encoded)

    made = Sender()
    made.slow = []
    made._open = batch = Batch()
    batch.type, batch.alike, batch.pending, batch.solo = typed, 3, [], solo
    batch.ids = zip(repeat("me"), range(3))
    batch.places, batch.of = {}, bytearray()
    return made


@both
def test_a_body_that_the_batch_takes_is_appended(kind: ModuleType):
    async def main():
        end = sender(kind)
        assert [await end.send(body) for body in (b"a", b"bcd", b"")] == [("me", 0), ("me", 1), ("me", 2)]
        assert end._open.pending == [b"a", b"bcd", b""] and end.slow == []
        assert await end.send(b"x") == "sent"  # no identity is left
        assert end.slow == [(b"x",)]

    asyncio.run(main())


@both
def test_any_other_body_goes_the_long_way(kind: ModuleType):
    async def main():
        end = sender(kind)
        assert await end.send(b"long") == "sent"
        assert await end.send("text") == "sent"
        assert await end.send(bytearray(b"a")) == "sent"
        assert await end.send(b"a", 1) == "sent"
        assert await end.send(b"a", to=1) == "sent"
        assert await end.send(body=b"b") == ("me", 0)
        end._open.type = None
        assert await end.send(b"a") == "sent"
        end._open = None
        assert await end.send(b"a") == "sent"
        with pytest.raises(TypeError):
            await end.send()

    asyncio.run(main())


@both
def test_a_body_of_a_type_is_encoded(kind: ModuleType):
    async def main():
        end = sender(kind, typed=str)
        assert await end.send("ab") == ("me", 0)
        assert end._open.pending == [b"ab"]
        assert await end.send("long") == "sent"
        with pytest.raises(ValueError, match="bad body"):
            await end.send("bad")

    asyncio.run(main())


@both
def test_topics_must_be_those_of_the_batch(kind: ModuleType):
    async def main():
        end = sender(kind, solo="a/b")
        assert await end.publish("/".join("ab"), b"1") == ("me", 0)
        assert await end.publish("a/c", b"2") == "published"
        assert await end.publish("a/b", b"3", True) == "published"
        assert await end.publish("a/b", b"4", retain=True) == "published"
        assert end.slow == [("a/c", b"2"), ("a/b", b"3"), ("a/b", b"4")] and end._open.pending == [b"1"]
        end._open.solo = None
        assert await end.publish("a/b", b"5") == "published"

    asyncio.run(main())


@both
def test_under_several_topics_each_body_has_the_place_of_its_own(kind: ModuleType):
    async def main():
        end = sender(kind)
        batch = end._open
        batch.places = {"a": 0, "b": 255, "c": 256, "d": "no number"}
        assert await end.publish("b", b"1") == ("me", 0)
        assert await end.publish("a", b"2") == ("me", 1)
        assert batch.pending == [b"1", b"2"] and batch.of == bytearray([255, 0])
        assert await end.publish("e", b"3") == "published"
        for topic, error in (("c", ValueError), ("d", TypeError)):
            batch.ids = zip(repeat("me"), range(3))
            with pytest.raises(error):  # as it is in Python: such a batch is never made
                await end.publish(topic, b"4")
        assert batch.of == bytearray([255, 0])
        end.slow.clear()
        batch.ids = iter(())
        assert await end.publish("a", b"5") == "published"
        assert batch.of == bytearray([255, 0]) and end.slow == [("a", b"5")]

    asyncio.run(main())


@both
def test_tasks_may_send(kind: ModuleType):
    async def main():
        end = sender(kind)
        task = asyncio.create_task(end.send(b"a"))
        assert "send" in repr(task)
        assert await task == ("me", 0)
        assert await asyncio.gather(end.send(b"b"), end.send(b"long")) == [("me", 1), "sent"]
        assert await asyncio.wait_for(end.send(b"c"), 1) == ("me", 2)
        async with asyncio.TaskGroup() as tasks:
            last = tasks.create_task(end.send(b"d"))
        assert last.result() == "sent"

    asyncio.run(main())


@both
def test_a_call_is_awaited_once_and_not_before(kind: ModuleType):
    async def main():
        end = sender(kind)
        call = end.send(b"a")
        assert end._open.pending == []
        assert await call == ("me", 0)
        with pytest.raises(RuntimeError, match="already awaited"):
            await call
        late = end.send(b"b")
        end._open.alike = -1  # what was true when it was called need not be when it is awaited
        assert await late == "sent"

    asyncio.run(main())


@both
def test_a_call_that_is_never_awaited_sends_nothing_and_warns(kind: ModuleType):
    end = sender(kind)
    with pytest.warns(RuntimeWarning, match=r"coroutine '.*send' was never awaited"):
        end.send(b"a")
    assert end._open.pending == []
    end.send(b"a").close()  # told on purpose


@both
def test_a_call_can_be_cancelled(kind: ModuleType):
    async def main():
        end = sender(kind)
        for body in (b"a", b"long"):
            task = asyncio.create_task(end.send(body))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        running = asyncio.create_task(end.send(b"long"))
        await asyncio.sleep(0)
        assert end.slow == [(b"long",)]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert end._open.pending == []

    asyncio.run(main())


@both
def test_an_end_may_have_anything_open(kind: ModuleType):
    async def main():
        end = sender(kind)
        end._open = ([], bytes, None, None, None)
        with pytest.raises(AttributeError):
            await end.send(b"a")

    asyncio.run(main())


@both
def test_identities_come_from_anywhere(kind: ModuleType):
    async def main():
        end = sender(kind)
        end._open.ids = map(next, repeat(iter(["a"])))  # ends with an exception that is set
        assert await end.send(b"a") == "a"
        assert await end.send(b"b") == "sent"
        end._open.ids = ["c"]
        assert await end.send(b"c") == "c"

        def last():
            end._open.ids, end._open.pending = iter(()), []
            yield "d"

        end._open.ids = last()
        assert await end.send(b"d") == "d" and end._open.pending == [b"d"]

    asyncio.run(main())


class Text:
    """A body that does something when it is encoded."""

    def __init__(self, does=lambda: b"abc"):
        self.does = does

    def encode(self):
        return self.does()


@both
def test_a_call_is_not_used_while_it_runs(kind: ModuleType):
    refused = []

    def back():
        for use in (lambda: call.send(None), lambda: call.throw(KeyError()), call.close):
            with pytest.raises(ValueError, match="already executing"):
                use()
            refused.append(use)
        return b"abc"

    async def main():
        nonlocal call
        end = sender(kind, typed=Text)
        call = end.send(Text(back))
        assert await call == ("me", 0) and len(refused) == 3
        call = end.send(Text(back))
        end._open.alike = 0  # the long way
        task = asyncio.create_task(call)
        assert await task == "sent" and end._open.pending == [b"abc"]

    call = None
    asyncio.run(main())


@both
def test_one_task_awaits_a_call(kind: ModuleType):
    async def main():
        end = sender(kind)
        call = end.send(b"a")
        end._open.alike = -1
        first, second = asyncio.create_task(one(call)), asyncio.create_task(one(call))
        with pytest.raises(RuntimeError, match="being awaited already"):
            await second
        assert await first == "sent"

    async def one(call):
        return await call

    asyncio.run(main())


@both
def test_what_encoding_raises_is_never_a_result(kind: ModuleType):
    def stops():
        raise StopIteration("x")

    async def main():
        end = sender(kind, typed=Text)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.create_task(end.send(Text(stops)))
        assert end._open.pending == []

    asyncio.run(main())


@both
def test_a_call_that_is_over_keeps_nothing(kind: ModuleType):
    async def main():
        end = sender(kind, typed=Text)
        for most in (3, 0):
            body = Text()
            gone = weakref.ref(body)
            call = end.send(body)
            end._open.alike = most
            await call
            end.slow.clear()
            del body
            assert gone() is None

    asyncio.run(main())


@both
def test_calls_that_are_never_awaited_all_warn_and_are_collected(kind: ModuleType):
    end = sender(kind, typed=Text)
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="never awaited"):
            end.send(Text())
    body = Text()
    body.call = end.send(body)
    gone = weakref.ref(body)
    del body
    with pytest.warns(RuntimeWarning, match="never awaited"):
        gc.collect()
    assert gone() is None


@both
def test_the_method_is_shown_as_the_function_that_it_is(kind: ModuleType):
    end = sender(kind)
    assert inspect.iscoroutinefunction(end.send) and inspect.iscoroutinefunction(type(end).send)
    assert str(inspect.signature(end.send)) == "(body, to=None)"
    assert inspect.getdoc(end.send) == "Sends it."
    assert end.send.__name__ == "send"


@both
def test_nothing_is_kept_of_what_was_sent_and_read(kind: ModuleType):
    body, end = b"abc", sender(kind)

    async def send():
        for _ in range(1_000):
            end._open.ids = zip(repeat("me"), count())
            await end.send(body)
            await end.send(body, 1)
            end._open.pending.clear()
            end.slow.clear()

    async def read():
        elements = kind.flatten(brought([[body] * 10] * 100))
        return [element async for element in elements]

    asyncio.run(send())
    gc.collect()
    before = sys.getrefcount(body)
    asyncio.run(send())
    asyncio.run(read())
    gc.collect()
    assert sys.getrefcount(body) <= before
