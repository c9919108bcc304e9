"""The communicator: places, slow handlers, preemptive objects, what becomes of each message."""

from random import Random

import pytest

from pluribus.core.errors import BadInput, NoObject, Overflow
from pluribus.objects import communicator as communicator_of
from pluribus.objects.communicator import Communicator
from pluribus.objects.directory import Directory
from pluribus.objects.handlers import handles
from pluribus.objects.messages import KEEP, ObjectMessage, addressed
from pluribus.objects.names import new_id
from pluribus.objects.subprotocols import Subprotocol
from pluribus.wire.kqml import Kqml, Word, kqml, parse

RANDOM = Random(5)


class Quick:
    def __init__(self, gives=None) -> None:
        self.got: list = []
        self.gives = gives

    @handles("tell", "ask-one", quick=True)
    def take(self, message: Kqml):
        self.got.append(message)
        if isinstance(self.gives, Exception):
            raise self.gives
        return self.gives


class Slow:
    @handles("tell")
    async def take(self, message: Kqml) -> None: ...


class Sayer:
    def __init__(self) -> None:
        self.got: list = []

    async def say(self, message) -> None:
        self.got.append(message)


class Bench:
    """A communicator whose handlers are ended by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.directory = Directory()
        self.started: list = []
        self.over: list = []
        self.communicator = Communicator(self.started.append, lambda: self.now)

    def add(self, served, *aliases, **options):
        return self.directory.add(served, new_id(RANDOM), aliases, **options)

    def deliver(self, target, message) -> None:
        self.communicator.deliver(target, message, lambda d, result, error: self.over.append((d, result, error)))
        self.communicator.validate()
        self.directory.validate()

    def end(self, delivery, result=None, error=None) -> None:
        self.started.remove(delivery)
        self.communicator.ended(delivery, result, error)
        self.communicator.validate()


def test_one_object_uses_its_own_places_and_no_more(monkeypatch):
    monkeypatch.setattr(communicator_of, "OBJECT_TASKS_MAX", 3)
    monkeypatch.setattr(communicator_of, "OBJECT_WAITING_MAX", 4)
    bench = Bench()
    busy, other = bench.add(Slow()), bench.add(Slow())
    for number in range(8):
        bench.deliver(busy, kqml("tell", content=number))
    assert len(bench.started) == 3 and len(busy.waiting) == 4
    ((_, _, refused),) = bench.over
    assert isinstance(refused, Overflow) and "wait for" in str(refused)
    bench.deliver(other, kqml("tell", content=99))
    assert bench.started[-1].resident is other, "others are not held up"
    seen = []
    while bench.started:
        seen.append(bench.started[0].message.content)
        bench.end(bench.started[0])
    assert sorted(map(int, seen)) == [0, 1, 2, 3, 4, 5, 6, 99] and not busy.running and not busy.waiting


def test_slow_handlers_are_reported_and_hold_no_place_that_others_could_use(monkeypatch):
    monkeypatch.setattr(communicator_of, "COMMUNICATOR_TASKS_MAX", 2)
    bench = Bench()
    stuck = [bench.add(Slow()) for _ in range(2)]
    for resident in stuck:
        bench.deliver(resident, kqml("tell"))
    other = bench.add(Slow())
    bench.deliver(other, kqml("tell"))
    assert len(bench.started) == 2, "all places are taken"
    assert bench.communicator.slow() == []
    bench.now = communicator_of.SLOW_S
    assert [delivery.resident for delivery in bench.communicator.slow()] == stuck
    assert bench.communicator.slow() == [], "each is reported once"
    assert bench.started[-1].resident is other
    for delivery in list(bench.started):
        bench.end(delivery)
    assert bench.communicator.running == 0 and len(bench.over) == 3


def test_objects_take_turns_for_free_places(monkeypatch):
    monkeypatch.setattr(communicator_of, "COMMUNICATOR_TASKS_MAX", 1)
    bench = Bench()
    many, few = bench.add(Slow()), bench.add(Slow())
    for _ in range(5):
        bench.deliver(many, kqml("tell"))
    bench.deliver(few, kqml("tell"))
    order = []
    while bench.started:
        order.append(bench.started[0].resident)
        bench.end(bench.started[0])
    assert order.index(few) <= 2 and len(order) == 6


def test_a_preemptive_object_gets_a_message_in_place_of_its_target():
    bench = Bench()
    target, guard = Quick(), Quick("guarded")
    resident = bench.add(target)
    bench.add(guard)
    bench.directory.preempt(target, guard)
    bench.deliver(resident, kqml("tell"))
    assert not target.got and len(guard.got) == 1 and bench.over[0][1:] == ("guarded", None)


@pytest.mark.parametrize(
    ("gives", "reaches", "content"),
    [(None, True, "was"), (KEEP, False, None), (kqml("tell", content="changed"), True, "changed")],
)
def test_a_preemptive_object_before_its_target_lets_pass_changes_or_keeps(gives, reaches, content):
    bench = Bench()
    target, guard = Quick("done"), Quick(gives)
    resident = bench.add(target)
    bench.add(guard)
    bench.directory.preempt(target, guard, "before")
    message = addressed(kqml("tell", content="was"), "id:a", resident.id, "q1")
    bench.deliver(resident, message)
    assert len(guard.got) == 1 and bool(target.got) is reaches
    if reaches:
        assert target.got[0].content == content and target.got[0]["reply-with"] == "q1"
    assert [(result, error) for _, result, error in bench.over] == [("done" if reaches else None, None)]


def test_a_preemptive_object_that_fails_keeps_the_message_from_its_target():
    bench = Bench()
    target, guard = Quick(), Quick(ValueError("no"))
    resident = bench.add(target)
    bench.add(guard)
    bench.directory.preempt(target, guard, "before")
    bench.deliver(resident, kqml("tell"))
    assert not target.got and isinstance(bench.over[0][2], ValueError)


def test_a_slow_preemptive_object_is_waited_for():
    bench = Bench()
    target = Quick()
    resident = bench.add(target)
    guard = bench.add(Slow())
    bench.directory.preempt(target, guard, "before")
    bench.deliver(resident, kqml("tell"))
    assert not target.got
    bench.end(bench.started[0])
    assert len(target.got) == 1 and len(bench.over) == 1


def test_unknown_performatives_reach_the_object_or_are_an_error():
    bench = Bench()
    sayer = Sayer()
    bench.deliver(bench.add(sayer), kqml("evaluate"))
    assert bench.started[0].handler.call == sayer.say
    bench.deliver(bench.add(Quick()), kqml("evaluate"))
    assert isinstance(bench.over[0][2], NoObject) and "'evaluate'" in str(bench.over[0][2])
    bench.deliver(bench.add(Quick()), ObjectMessage(5))
    assert "takes no int" in str(bench.over[1][2])


def test_the_two_messages_of_the_source():
    bench = Bench()
    resident = bench.add(Quick())
    for what, there in (("joinMulticastGroup", True), ("joinMulticastGroup", True), ("quitMulticastGroup", False)):
        bench.deliver(resident, parse(f"(achieve :subprotocol MulticastGroupControl :content {what} :groupID floor-3)"))
        assert bench.directory.knows("floor-3") is there and bench.over[-1][2] is None
    for wrong in (":content dance :groupID floor-3", ":content joinMulticastGroup"):
        bench.deliver(resident, parse(f"(achieve :subprotocol MulticastGroupControl {wrong})"))
        assert isinstance(bench.over[-1][2], BadInput)
    bench.deliver(resident, parse("(achieve :subprotocol Unheard :content x)"))
    assert "subprotocol 'Unheard'" in str(bench.over[-1][2])


def test_a_subprotocol_is_a_class_of_its_own():
    class Counting(Subprotocol):
        name = "Counting"

        @handles("tell", subprotocol="Counting", quick=True)
        def count(self, message: Kqml) -> int:
            return int(message.content) + len(self.resident.aliases)

    bench = Bench()
    resident = bench.add(Quick("plain"), "a", "b", subprotocols=[Counting])
    bench.deliver(resident, parse("(tell :subprotocol Counting :content 40)"))
    bench.deliver(resident, parse("(tell :content 40)"))
    assert [result for _, result, _ in bench.over] == [42, "plain"]


def test_register_gives_an_alias_and_unregister_takes_it():
    bench = Bench()
    resident = bench.add(Quick())
    bench.deliver(resident, parse("(register :name lobby)"))
    assert bench.directory.one_of("lobby") is resident
    bench.deliver(resident, parse("(unregister :name lobby)"))
    assert not bench.directory.knows("lobby")
    bench.deliver(resident, parse("(register)"))
    assert isinstance(bench.over[-1][2], BadInput)


def test_a_broadcast_of_a_message_is_handled_as_that_message():
    bench = Bench()
    target = Quick("answer")
    resident = bench.add(target)
    bench.deliver(resident, parse("(broadcast :reply-with q1 :sender id:x :content (ask-one :content price))"))
    (got,) = target.got
    assert (got.performative, got.content, got["reply-with"], got["sender"]) == ("ask-one", "price", "q1", "id:x")
    assert bench.over[0][1] == "answer"


def test_subscribers_are_known_by_what_they_want():
    bench = Bench()
    resident = bench.add(Quick())
    for token, content in (("s1", "temperature"), ("s2", "(ask-one :content temperature)"), ("s3", "humidity")):
        bench.deliver(resident, parse(f"(subscribe :sender id:me :reply-with {token} :content {content})"))
    assert [token for _, token in resident.wanted_by(Word("temperature"))] == ["s1", "s2"]
    bench.deliver(resident, parse("(discard :sender id:me :in-reply-to s1)"))
    assert [token for _, token in resident.wanted_by("temperature")] == ["s2"]
    bench.deliver(resident, parse("(subscribe :content x)"))
    assert isinstance(bench.over[-1][2], BadInput)


def test_quick_handlers_that_call_each_other_get_tasks_in_the_end():
    bench = Bench()

    class Echo:
        count = 0

        @handles("tell", quick=True)
        def take(self, message: Kqml) -> None:
            Echo.count += 1
            if Echo.count < 1_000:
                bench.communicator.deliver(resident, message, lambda *_: None)

    resident = bench.add(Echo())
    bench.deliver(resident, kqml("tell"))
    assert Echo.count == communicator_of.NESTED_MAX and len(bench.started) == 1
