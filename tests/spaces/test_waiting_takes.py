"""Takes that wait at a replicated space: what they are handed, what others see of it, and when they are over."""

from pluribus.spaces import machine as machines
from pluribus.spaces import words
from pluribus.spaces.templates import template_of
from pluribus.spaces.values import item_of
from pluribus.spaces.words import Done, Ended, Nothing, Taken, Waiting
from tests.spaces.test_machine import LEASE_US, machine


def test_a_tuple_on_its_way_to_a_take_is_hidden_until_that_is_over():
    space = machine()
    wanted = template_of(("a", int))

    def waits(consumer):
        waiting = words.Take(wanted, wait=True, consumer=consumer, owner=consumer, owner_lease_us=1)
        assert isinstance(space.do(waiting), Waiting)

    waits(11)
    space.do(words.Write([item_of(("a", 1))]))
    assert isinstance(space.answer(words.Find(wanted)), Taken), "it is there until it is taken"
    assert space.answer(words.Count(wanted)) == Done(1) and space.answer(words.Find(wanted, 10, 0)).numbers == [1]
    assert space.do(words.Take(wanted)) == Nothing(True)
    cautious = words.Take(wanted, wait=True, consumer=12, owner=12, owner_lease_us=1, if_exists=True)
    assert isinstance(space.do(cautious), Waiting)
    space.do(words.Finish(11))
    assert space.answer(words.Find(wanted)) == Nothing()
    assert 12 not in space.lines.waiters, "there is nothing to wait for any more"
    waits(13)
    space.do(words.Write([item_of(("a", 2))]))
    restored = machine()
    restored.restore([(name, space.encode_part(name)) for name in space.part_names()])
    for one in (space, restored):
        one.validate()
        assert one.do(words.Take(wanted)) == Nothing(True)
        one.do(words.Release(13))
        assert isinstance(one.answer(words.Find(wanted)), Taken), "it came back"
        one.validate()


def test_what_a_take_was_handed_comes_back_if_there_is_no_room_for_its_replacement(monkeypatch):
    space = machine()
    wanted = template_of(("a", int))
    space.do(words.Take(wanted, wait=True, consumer=11, owner=1, owner_lease_us=1))
    space.do(words.Write([item_of(("a", 1))]))
    monkeypatch.setattr(machines, "TUPLES_MAX", 1)
    assert isinstance(space.do(words.Finish(11, [item_of(("b", 1))])), words.Refused)
    assert space.do(words.Take(wanted)).numbers == [1], "nobody holds it any more"
    space.validate()


def test_a_take_that_waits_for_a_hidden_tuple_is_over_when_its_lease_ends():
    space = machine()
    now = space.ground.now_us = 1_000_000
    wanted = template_of(("a", int))
    for transaction in (7, 8):
        space.do(words.Join(transaction, 10 * LEASE_US))
    for ends in ("tick", "cancel"):
        written = space.do(words.Write([item_of(("a", 1))], LEASE_US))
        space.tick()
        for transaction in (7, 8):
            assert isinstance(space.do(words.Take(wanted, transaction=transaction, keep=True)), Taken)
        cautious = words.Take(wanted, wait=True, consumer=12, owner=12, owner_lease_us=1, if_exists=True)
        assert isinstance(space.do(cautious), Waiting)
        if ends == "tick":
            space.ground.now_us = now + 2 * LEASE_US
            space.tick()
        else:
            assert space.do(words.Cancel(written.numbers[0])) == Done()
        assert 12 not in space.lines.waiters, ends
        space.validate()


def test_a_registration_cannot_have_the_number_of_a_waiting_take():
    space = machine()
    wanted = template_of(("a", int))
    space.do(words.Take(wanted, wait=True, consumer=11, owner=1, owner_lease_us=1))
    assert isinstance(space.do(words.Notify(11, wanted, 0)), words.Refused)
    space.do(words.Write([item_of(("a", 1))]))
    assert isinstance(space.do(words.Finish(11)), Taken)
    space.validate()


def test_takes_are_served_in_their_order_and_what_a_dead_taker_was_handed_comes_back():
    space = machine()
    for consumer in (11, 12, 13):
        waiting = words.Take(template_of(("a", int)), wait=True, consumer=consumer, owner=consumer, owner_lease_us=1)
        assert isinstance(space.do(waiting), Waiting)
    space.do(words.Write([item_of(("a", 1)), item_of(("a", 2))]))
    assert space.do(words.Take(template_of(("a", int)))) == Nothing(True), "both are handed out"
    space.expire([11])
    assert space.do(words.Finish(11)) == Ended("consumer")
    assert space.do(words.Finish(13)).numbers == [1], "the next in line"
    assert space.do(words.Finish(12)).numbers == [2]
    assert not space.kept


def test_a_transaction_that_waits_for_what_it_has_read_is_served_when_it_alone_locks_it():
    space = machine()
    template, item = template_of(("a", int)), item_of(("a", 1))
    space.do(words.Write([item]))
    for transaction in (7, 8):
        space.do(words.Join(transaction, LEASE_US))
        assert space.do(words.Take(template, transaction=transaction, keep=True)) == Taken([1], [item])
    waiting = words.Take(template, wait=True, consumer=11, owner=1, owner_lease_us=1, transaction=7, if_exists=True)
    assert isinstance(space.do(waiting), Waiting)
    space.do(words.Abort(8))
    assert space.do(words.Finish(11)) == Taken([1], [item])
    space.validate()
    space.do(words.Abort(7))
    assert space.do(words.Take(template)) == Taken([1], [item])


def test_what_is_handed_to_a_transaction_that_reads_it_is_locked_again_if_the_taker_dies():
    space = machine()
    template, item = template_of(("a", int)), item_of(("a", 1))
    space.do(words.Write([item]))
    for transaction in (7, 8):
        space.do(words.Join(transaction, LEASE_US))
        space.do(words.Take(template, transaction=transaction, keep=True))
    space.do(words.Take(template, wait=True, consumer=11, owner=1, owner_lease_us=1, transaction=7))
    space.do(words.Commit(8))
    space.expire([1])
    space.validate()
    assert space.do(words.Take(template)) == Nothing(True), "the transaction reads it still"
    assert space.do(words.Take(template, transaction=7)) == Taken([1], [item])
