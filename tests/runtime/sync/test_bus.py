"""The synchronous face: the same bus from plain code, from many threads, across forks and to the end of a process."""

import asyncio
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import pluribus
from pluribus import sync
from pluribus.bench.ports import free_port
from pluribus.core.errors import AnswersLate, BadInput, Closed, GroupMismatch, Overflow, Undelivered
from pluribus.core.limits import SILENCE_S
from pluribus.runtime.loop import background
from tests.harness import new_bus
from tests.runtime.clients.test_client import url_of as url_of_real

WITHIN_S = 20.0


@contextmanager
def pair(own: bool = False) -> Iterator[tuple[sync.Group, sync.Group]]:
    url = new_bus()
    with sync.connect(url, name="a") as a, sync.connect(url, name="b") as b:
        one, other = a.group("x", own=own), b.group("x", own=own)
        one.wait_for(2)
        other.wait_for(2)
        yield one, other


def url_of(member: sync.Bus) -> str:
    return url_of_real(member._real)


def joined(thread: threading.Thread) -> None:
    thread.join(WITHIN_S)
    assert not thread.is_alive()


def test_a_misspelt_name_or_option_is_refused():
    with sync.connect(new_bus(), name="alone") as bus:
        with pytest.raises(AttributeError, match="nonsense"):
            _ = bus.nonsense  # type: ignore[attr-defined]
        for attempt in (
            lambda: bus.space("s", kynd="views"),
            lambda: bus.group("x").send(b"x", timout=1),
            lambda: bus.directory.find("x", timout=1),
            lambda: bus.conversations().room("r", descripton=""),
            lambda: bus.transaction(timout=1),
            lambda: bus.communications().buses(listen=1),
        ):
            with pytest.raises(TypeError, match="unexpected keyword"):
                attempt()


def test_connecting_has_the_options_of_the_asynchronous_one():
    options = inspect.signature(pluribus.connect.__init__).parameters.values()
    here = inspect.signature(sync.connect).parameters.values()
    assert [(one.name, one.kind, one.default) for one in here] == [
        (one.name, one.kind, one.default) for one in options if one.name != "self"
    ]
    with pytest.raises(TypeError, match="stroe"):
        sync.connect(new_bus(), stroe="a.db")  # type: ignore[call-arg]


def test_two_members_talk():
    with pair() as (one, other):
        sent = one.send(b"hello")
        received = other.receive(timeout=WITHIN_S)
        assert (received.body, received.id, received.sender) == (b"hello", sent, one.me)
        other.send({"plain": [1]}, to=one.me)
        assert one.receive(WITHIN_S).body == {"plain": [1]}
        assert set(one.view.names.values()) == {"a", "b"} and one.me in one.view


def test_a_group_is_sent_to_from_outside():
    url = new_bus()
    with sync.connect(url, name="inside") as inside, sync.connect(url, name="outside") as outside:
        group = inside.group("news", open=True)
        outside.group("meet").wait_for(1)
        relay = outside.relay("news")
        sent = [relay.send("it rains"), relay.send("it pours", wait="stable", timeout=WITHIN_S)]
        relay.drain(timeout=WITHIN_S)
        received = [group.receive(timeout=WITHIN_S) for _ in sent]
        assert [(m.body, m.id, m.sender) for m in received] == [
            ("it rains", sent[0], outside.me),
            ("it pours", sent[1], outside.me),
        ]
        assert relay.pending == 0 and relay.name == "news"


def test_iteration_gets_everything_in_order_and_may_be_left_and_taken_up():
    with pair() as (one, other):
        bodies = [b"%d" % number for number in range(20_000)]
        sender = threading.Thread(target=one.send_many, args=(bodies,))
        sender.start()
        got: list[bytes] = []
        while len(got) < 20_000:
            stop_after = min(len(got) + 3_001, 20_000)
            for message in other:
                got.append(message.body)
                if len(got) == stop_after:
                    break
        joined(sender)
        assert got == bodies


def test_iteration_crosses_once_for_many_messages():
    with pair() as (one, other):
        calls = 0
        plain_call = other._thread.call

        class Counting:
            def __getattr__(self, name: str) -> object:
                return getattr(one._thread, name)

            def call(self, *args: object, **kwargs: object) -> object:
                nonlocal calls
                calls += 1
                return plain_call(*args, **kwargs)  # type: ignore[arg-type]

        one.send_many([b"x"] * 500)
        one.send(b"behind them")
        other.receive(WITHIN_S)
        other._thread = Counting()  # type: ignore[assignment]
        got = 1
        for message in other:
            got += 1
            if message.body == b"behind them":
                break
        assert got == 501
        assert calls < 20


def test_send_many_returns_an_identity_each_and_says_how_many_went_before_an_error():
    with pair() as (one, other):
        assert one.send_many([]) == []
        sent = one.send_many(f"{number}" for number in range(1_000))
        assert len(set(sent)) == 1_000
        got = [other.receive(WITHIN_S) for _ in range(1_000)]
        assert [message.id for message in got] == sent
        with pytest.raises(Overflow) as caught:
            one.send_many([bytes(10_000)] * 1_000, timeout=0.05)
        (note,) = caught.value.__notes__
        count = int(note.partition(" ")[0])
        assert 0 < count < 1_000 and note == f"{count} of 1000 messages were sent before"
        assert all(len(other.receive(WITHIN_S).body) == 10_000 for _ in range(count))


def test_time_outs_are_those_of_the_caller():
    with pair() as (one, other):
        with pytest.raises(TimeoutError):
            other.receive(timeout=0.01)
        with pytest.raises(TimeoutError):
            other.receive(timeout=0)
        with pytest.raises(TimeoutError):
            other.wait_for(3, timeout=0.01)
        one.send(b"later")
        assert other.receive(WITHIN_S).body == b"later"


def test_receive_many_takes_what_is_there():
    with pair() as (one, other):
        one.send_many([b"%d" % number for number in range(100)])
        got: list[bytes] = []
        while len(got) < 100:
            batch = other.receive_many(most=7, timeout=WITHIN_S)
            assert 1 <= len(batch) <= 7
            got += [message.body for message in batch]
        assert got == [b"%d" % number for number in range(100)]


def test_views_and_handlers():
    url = new_bus()
    with sync.connect(url, name="a") as a:
        group = a.group("x")
        seen: list[set[str]] = []
        found = threading.Event()

        def watch() -> None:
            for view in group.views():
                seen.append(set(view.names.values()))
                if seen[-1] == {"a", "b"}:
                    found.set()

        watching = threading.Thread(target=watch)
        watching.start()
        handled: list[object] = []
        handling = threading.Thread(target=group.handle, args=(lambda message: handled.append(message.body),))
        handling.start()
        with sync.connect(url, name="b") as b:
            other = b.group("x")
            assert found.wait(WITHIN_S)
            other.wait_for(2)
            other.send("for the handler")
        group.close()
        joined(watching)
        joined(handling)
        assert seen[0] == {"a"}
        assert handled in ([], ["for the handler"])


def test_several_threads_share_the_messages_of_a_group():
    with pair() as (one, other):
        got: list[bytes] = []
        readers = [threading.Thread(target=lambda: got.extend(m.body for m in other)) for _ in range(4)]
        for reader in readers:
            reader.start()
        senders = [
            threading.Thread(target=one.send_many, args=([b"%d/%d" % (thread, number) for number in range(2_000)],))
            for thread in range(4)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            joined(sender)
        one.send(b"last")
        deadline = threading.Event()
        while len(got) < 8_001 and not deadline.wait(0.001):
            assert all(reader.is_alive() for reader in readers)
        other.close()
        for reader in readers:
            joined(reader)
        assert sorted(got) == sorted([b"%d/%d" % (t, n) for t in range(4) for n in range(2_000)] + [b"last"])


def test_closing_wakes_a_thread_that_waits():
    with pair() as (_one, other):
        outcomes: list[object] = []

        def wait() -> None:
            try:
                other.receive()
            except Closed as error:
                outcomes.append(error)

        waiting = [threading.Thread(target=wait), threading.Thread(target=lambda: outcomes.append(list(other)))]
        for thread in waiting:
            thread.start()
        other.close()
        for thread in waiting:
            joined(thread)
        assert len(outcomes) == 2 and [] in outcomes
        other.close()
        assert other.closed
        with pytest.raises(Closed):
            other.send(b"x")


def test_groups_asked_for_again_are_the_same():
    with sync.connect(new_bus()) as bus:
        group = bus.group("x")
        assert bus.group("x") is group
        with pytest.raises(GroupMismatch):
            bus.group("x", own=False)
        group.close()
        assert bus.group("x", own=False) is not group
        bus.validate()


def test_all_members_of_a_process_share_one_thread():
    with sync.connect(new_bus()), sync.connect(new_bus()):
        assert [thread.name for thread in threading.enumerate()].count("pluribus-sync") == 1


def test_inside_a_running_loop_it_refuses_with_the_remedy():
    url = new_bus()
    with sync.connect(url) as bus:

        async def inside() -> None:
            for attempt in (lambda: sync.connect(url), lambda: bus.group("x"), bus.stats):
                with pytest.raises(BadInput, match=r"use pluribus\.connect and await there"):
                    attempt()
            await asyncio.to_thread(bus.group, "x")  # in a thread it may wait

        asyncio.run(inside())


def test_a_notebook_may_wait_though_its_cells_run_inside_a_loop(monkeypatch: pytest.MonkeyPatch):
    shell = type("Shell", (), {"kernel": object()})()
    notebook = type("IPython", (), {"get_ipython": staticmethod(lambda: shell)})
    monkeypatch.setitem(sys.modules, "IPython", notebook)  # type: ignore[arg-type]

    async def cell() -> int:
        with sync.connect(new_bus()) as bus:
            return len(bus.members)

    assert asyncio.run(cell()) == 1


def test_a_synchronous_and_an_asynchronous_member_talk():
    url = new_bus()

    async def answer(ready: threading.Event) -> None:
        async with pluribus.connect(url, name="async") as bus:
            group = await bus.group("x", own=False)
            ready.set()
            message = await group.receive(WITHIN_S)
            await group.send(message.body.upper(), to=message.sender)
            await group.receive(WITHIN_S)

    ready = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(answer(ready)))
    thread.start()
    assert ready.wait(WITHIN_S)
    with sync.connect(url, name="sync") as bus:
        group = bus.group("x", own=False)
        group.wait_for(2)
        group.send("question")
        assert group.receive(WITHIN_S).body == "QUESTION"
        group.send("thanks")
        joined(thread)


# --- processes ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_not_hang_and_may_connect_for_itself():
    script = f"""
import os, sys, pluribus
from pluribus import sync
from pluribus.core.errors import Closed
url = {new_bus()!r}
bus = sync.connect(url, name="parent")
group = bus.group("x")
child = os.fork()
if child == 0:
    refused = 0
    for attempt in (lambda: group.send(b"x"), lambda: group.receive(), bus.stats, lambda: next(iter(group))):
        try:
            attempt()
        except Closed as error:
            assert "connect again after a fork" in str(error)
            refused += 1
    assert bus.closed and group.closed
    group.close(); bus.close()
    with sync.connect(url, name="child") as own:
        mine = own.group("x")
        mine.send(b"to myself")
        assert mine.receive(10).body == b"to myself"
        assert own.members == {{own.me: "child"}}
    sys.exit(0 if refused == 4 else 1)
assert os.waitpid(child, 0)[1] == 0
group.send(b"still here")
assert group.receive(10).body == b"still here"
print("both fine")
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=WITHIN_S)
    assert answer.stdout == "both fine\n", answer.stderr


def test_a_process_that_ends_says_goodbye_first():
    """A member that nobody closed: its process ends at once, and the others do not wait for its silence."""
    url = f"udp://127.0.0.1:{free_port()}/ending"
    with sync.connect(url, name="stays") as bus:
        group = bus.group("x")
        script = f"""
from pluribus import sync
group = sync.connect({url!r}, name="ends").group("x")
group.wait_for(2)
group.send(b"last words")
"""
        process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
        assert group.receive(WITHIN_S).body == b"last words"
        _, complaints = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0 and complaints == ""
        ended_at = time.monotonic()
        assert any(len(view) == 1 for view in group.views())
        assert time.monotonic() - ended_at < SILENCE_S / 2


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to interrupt with")
def test_an_interrupt_ends_the_wait_and_loses_nothing():
    with pair() as (one, other):
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever tests before this one left there
        interrupt = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            other.receive()
        joined(interrupt)
        signal.signal(signal.SIGINT, before)
        one.send(b"after it")
        assert other.receive(WITHIN_S).body == b"after it"


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to interrupt with")
def test_what_an_interrupted_caller_wanted_to_know_is_not_asked():
    with sync.connect(new_bus()) as bus:
        failures: list[object] = []
        asked: list[int] = []
        go_on = threading.Event()
        bus._thread.ask(bus._thread._loop.set_exception_handler, lambda loop, context: failures.append(context))
        bus._thread._loop.call_soon_threadsafe(go_on.wait)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            bus._thread.ask(asked.append, 1)
        joined(interrupt)
        signal.signal(signal.SIGINT, before)
        go_on.set()
        bus._thread.ask(asked.append, 2)
        bus._thread.ask(bus._thread._loop.set_exception_handler, None)
        assert asked == [2] and not failures


def test_leaving_because_of_an_error_raises_that_error(monkeypatch: pytest.MonkeyPatch):
    async def undelivered(timeout: float) -> None:
        raise Undelivered("2 messages have not reached somebody")

    with sync.connect(new_bus()) as bus, monkeypatch.context() as patched:
        patched.setattr(bus._real, "close", undelivered)
        with pytest.raises(LookupError) as error, bus:
            raise LookupError("mine")
        assert "have not reached" in error.value.__notes__[0]
        with pytest.raises(Undelivered), bus:
            pass


def test_what_another_thread_has_fetched_is_not_waited_for():
    with pair() as (one, other):
        one.send_many([b"a", b"b"])
        assert other.receive(WITHIN_S).body == b"a"
        while not other._fetched:
            other._fetch(WITHIN_S)
        other._fetch(timeout=0)  # as a thread does that looked before the other one was done
        assert other.receive(0).body == b"b"


def test_a_thread_that_ended_is_started_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(background, "_background", background.Background())
    with sync.connect(new_bus()) as bus:
        mine = background._background
        assert mine is not None and bus._thread is mine
    mine.end()
    assert not mine.usable
    with pytest.raises(Closed, match="the process is ending"):
        bus.group("x")
    with sync.connect(new_bus()) as again:
        assert again.members == {again.me: again.name}
        assert again._thread is not mine
        again._thread.end()


class Doubler:
    @pluribus.exposed
    def double(self, number: int) -> int:
        return 2 * number


def test_questions_calls_and_object_groups():
    with pair() as (one, other):

        def answer(message: pluribus.Message) -> str:
            if message.body == "bad":
                raise KeyError(message.body)
            if message.body == "itself":
                message.reply("myself")
            if message.body == "nothing":
                return next(iter(()))
            return "handled"

        question: list[pluribus.Message] = []
        asker = threading.Thread(target=lambda: question.append(other.receive(WITHIN_S)))
        asker.start()
        handler = threading.Thread(target=other.handle, args=(answer,))
        with pytest.raises(AnswersLate):
            one.ask("first", timeout=0.2)
        joined(asker)
        assert question[0].asks
        handler.start()
        assert [found.body for found in one.ask("anything", replies="one", timeout=WITHIN_S)] == ["handled"]
        assert one.ask("itself", timeout=WITHIN_S)[0].body == "myself"
        assert one.ask("bad", timeout=WITHIN_S)[0].error.kind == "KeyError"
        assert "StopIteration" in str(one.ask("nothing", timeout=WITHIN_S)[0].error)

        other.serve(Doubler())
        assert one.call("double", 4, timeout=WITHIN_S)[0].body == 8
        doublers = one.proxy(Doubler, timeout=WITHIN_S)
        assert doublers.double(5) == doublers.first.double(5) == 10
        assert [found.body for found in doublers.all.double(6)] == [12]
        assert len(doublers.majority.double(6)) == 1 and "synchronous" in repr(doublers)
        with pytest.raises(AttributeError):
            _ = doublers.triple
        other.close()
        joined(handler)
    with sync.connect(new_bus()) as bus:
        assert bus.objects("doublers", Doubler, serve=Doubler()).double(1) == 2


def test_a_client_without_await_is_in_groups_and_calls_objects():
    url = new_bus()
    with (
        sync.connect(url, name="inside", serve="127.0.0.1:0") as member,
        sync.connect(url_of(member), name="outside") as client,
    ):
        ours = member.group("talk")
        group = client.group("talk")
        assert ours.wait_for(2) and group.wait_for(2).names[group.me] == "outside"
        group.send("good day", wait="stable", timeout=WITHIN_S)
        assert [message.body for message in (ours.receive(WITHIN_S), group.receive(WITHIN_S))] == ["good day"] * 2

        handler = threading.Thread(target=group.handle, args=(lambda message: f"{message.body}!",))
        handler.start()
        assert [one.body for one in ours.ask("fire", replies=1, to=group.me, timeout=WITHIN_S)] == ["fire!"]
        group.close()
        joined(handler)

        asked = client.group("questions")
        other = member.group("questions")
        other.wait_for(2)
        asking = threading.Thread(target=lambda: other.ask("who?", replies=1, to=asked.me, timeout=WITHIN_S))
        asking.start()
        question = asked.receive(WITHIN_S)
        question.reply("me")
        joined(asking)

        member.objects("doublers", Doubler, serve=Doubler())
        doublers = client.objects("doublers", Doubler, timeout=WITHIN_S)
        assert doublers.double(5) == 10 and [one.body for one in doublers.all.double(6)] == [12]
        assert client.group("doublers").call("double", 7, timeout=WITHIN_S)[0].body == 14
        with pytest.raises(AttributeError):
            _ = doublers.triple
        with pytest.raises(BadInput, match="is for members"):
            client.objects("doublers", Doubler, serve=Doubler())
