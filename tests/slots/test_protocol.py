"""The protocol of a software bus, word by word: a router and occupants at one table."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadInput, Overflow, Refused
from pluribus.slots.check import plan_of
from pluribus.slots.keys import prove, verifier
from pluribus.slots.map import BusMap, Connect, Denied, Disconnect, Enrol, Expel, Leave
from pluribus.slots.occupant import ENROLLED, EXPELLED, OUT_OF_IT, REFUSED
from pluribus.slots.outbox import SlotOutbox
from pluribus.slots.plan import Connection, End
from pluribus.slots.router import FENCED, MISSES_MAX, PING_S, Router
from pluribus.slots.words import (
    AckData,
    AddRoute,
    Advertise,
    AnsRoute,
    CountTtl,
    Dropout,
    Dropped,
    Leg,
    NegAck,
    ReqRoute,
    RouteDeleted,
    SendData,
    SlotChanged,
)
from pluribus.wire.questions import unwrapped, wrapped
from tests.slots.plans import FIGURE_2
from tests.slots.table import ROUTER, Table

PRODUCER, ONE, TWO, THREE = 1, 2, 3, 4


def figure_2(**options):
    table = Table(FIGURE_2, **options)
    table.enroll(PRODUCER, "producer")
    for member, slot in ((ONE, "consumer1"), (TWO, "consumer2"), (THREE, "consumer3")):
        table.enroll(member, slot)
    table.said.clear()
    return table


def test_figures_4_and_5():
    """Consumer 3 asks the router; a count of two; two acknowledgements."""
    table = figure_2()
    table.send(PRODUCER, "red")
    table.read(ONE), table.read(THREE)
    counts = [word for _, _, word in table.heard if isinstance(word, CountTtl)]
    assert counts[0].count == 2 and counts[0].ttl_s == 60.0, "the longest time to live of the port's connections"
    table.heard.clear(), table.said.clear()
    queued = table.send(PRODUCER, "red")
    table.read(ONE), table.read(THREE)
    assert queued.done
    assert [type(word) for _, _, word in table.heard] == [SendData, CountTtl, AckData, AckData]
    assert table.cost() == 2 + 2, "N = 2 + R"
    table.validate()


def test_an_acknowledgement_may_come_before_the_count_and_no_send_completes_without_it():
    table = figure_2()
    table.send(PRODUCER, "red"), table.read(ONE), table.read(THREE)
    table.lost = lambda sender, to, word: isinstance(word, CountTtl)
    queued = table.send(PRODUCER, "red")
    table.read(ONE), table.read(THREE)
    assert queued.acknowledged == 2 and not queued.done
    table.lost = lambda sender, to, word: False
    table.pass_time(0.5)
    assert queued.done and table.read(ONE) == [], "it was not delivered again"


def test_an_empty_slot_is_counted_and_its_late_occupant_gets_what_waits():
    table = Table(FIGURE_2)
    table.enroll(PRODUCER, "producer"), table.enroll(ONE, "consumer1")
    queued = table.send(PRODUCER, "red", b"late")
    assert queued.counted == 2 and table.read(ONE) == [b"late"]
    table.pass_time(5)
    assert not queued.done
    table.enroll(THREE, "consumer3")
    table.pass_time(0.3)
    assert table.read(THREE) == [b"late"] and queued.done
    assert table.read(ONE) == [], "sent again, it is for those who have not acknowledged it"


def test_a_message_that_is_withheld_comes_again():
    table = figure_2()
    queued = table.send(PRODUCER, "green", b"no")
    consumer = table.machines[TWO]
    consumer.withhold(consumer.take_next("in", table.now))
    assert consumer.take_next("in", table.now) is None
    table.pass_time(1)
    assert not queued.done and table.read(TWO) == [b"no"] and queued.done


def test_a_message_expires_by_each_connections_own_time():
    events = []
    table = Table(FIGURE_2)
    table.enroll(PRODUCER, "producer", on_event=lambda what, about: events.append((what, about)))
    queued = table.send(PRODUCER, "red")
    table.pass_time(31, step=0.5)
    assert [str(end) for end in queued.expired] == ["consumer1.in"] and not queued.done
    table.enroll(ONE, "consumer1")
    table.pass_time(2)
    assert table.read(ONE) == [], "it came too late"
    table.pass_time(30, step=0.5)
    assert [str(end) for end in queued.expired] == ["consumer1.in", "consumer3.in"] and queued.done
    assert ("queued", queued) in events


def test_full_is_an_error_to_the_caller():
    table = Table(FIGURE_2.replace("capacity 100", "capacity 3"))
    table.enroll(PRODUCER, "producer", capacity=5)
    for _ in range(3):
        table.send(PRODUCER, "red")
    with pytest.raises(Overflow, match=r"consumer1\.in holds its 3 messages"):
        table.send(PRODUCER, "red")
    table.send(PRODUCER, "green"), table.send(PRODUCER, "green")
    with pytest.raises(Overflow, match="5 messages wait"):
        table.send(PRODUCER, "green")
    table.validate()


def test_who_was_silent_has_a_stale_ticket_and_its_co_occupants_do_not():
    table = Table("bus a\nslot p 0..2 { out o }\nslot c { in in }\np.o -> c.in")
    silent, other, _ = table.enroll(1, "p"), table.enroll(2, "p"), table.enroll(3, "c")
    table.send(1, "o"), table.send(2, "o"), table.read(3)
    table.lost = lambda sender, to, word: sender == 1 or to == 1
    table.pass_time(PING_S * (MISSES_MAX + 3))
    assert list(table.router.map.occupants("p")) == [other.ticket]
    table.lost = lambda sender, to, word: to == 1  # its words arrive, and it hears nothing
    silent.send("o", wrapped(b"stale"), table.now)
    table.settle()
    assert table.read(3) == [], "receivers know the generation of the slot"
    table.lost = lambda sender, to, word: False
    table.pass_time(2.5)
    assert silent.state == EXPELLED and "enroll again" in silent.reason
    with pytest.raises(Refused, match="not valid any more"):
        table.send(1, "o")
    assert table.send(2, "o", b"fine") and table.read(3) == [b"fine"]
    again = table.enroll(4, "p", carry=silent.carry(table.now))
    table.pass_time(0.5)
    assert table.read(3) == [b"stale"] and again.state == ENROLLED, "its queue goes on with a new ticket"


def test_a_drop_out_is_put_off_honoured_and_removes_dependent_routes_first():
    table = figure_2()
    producer = table.machines[PRODUCER]
    producer.drop_out(table.now, end=True)
    table.settle()
    assert any(isinstance(word, NegAck) and word.kind == "put off" for _, _, word in table.heard)
    table.lost = lambda sender, to, word: to == TWO and isinstance(word, RouteDeleted)
    table.pass_time(4)
    assert producer.state != OUT_OF_IT and not table.router.map.connections, "not everybody knows that they are gone"
    table.lost = lambda sender, to, word: False
    table.pass_time(1)
    assert producer.state == OUT_OF_IT
    order = [type(word) for _, _, word in table.heard if isinstance(word, RouteDeleted | Dropped)]
    assert order[:3] == [RouteDeleted] * 3 and order[-1] is Dropped


def test_an_occupant_that_moves_keeps_its_routes_and_nothing_is_lost_or_doubled():
    table = figure_2()
    table.send(PRODUCER, "green", b"before"), table.read(TWO)
    consumer = table.machines[TWO]
    table.lost = lambda sender, to, word: isinstance(word, AckData)
    table.send(PRODUCER, "green", b"acknowledged in vain"), table.read(TWO)
    table.lost = lambda sender, to, word: False
    consumer.drop_out(table.now, end=False)
    table.settle()
    assert consumer.state == OUT_OF_IT and len(table.router.map.connections) == 3
    del table.machines[TWO]
    table.send(PRODUCER, "green", b"meanwhile")
    table.enroll(20, "consumer2", carry=consumer.carry(table.now))
    table.pass_time(1)
    assert table.read(20) == [b"meanwhile"]
    table.pass_time(3)
    assert not table.machines[PRODUCER].outbox.queue


def test_a_router_moves_while_messages_flow():
    table = figure_2()
    queued = table.send(PRODUCER, "red")
    state = table.router.stop(cancel=False)
    table.send(PRODUCER, "red")
    table.read(ONE), table.read(THREE)
    del table.machines[ROUTER]
    table.pass_time(0.3)
    table.router = Router(BusMap.restored(state), 2_000, table.now, table.router._random)
    table.machines[2_000] = table.router
    table.pass_time(1)
    assert queued.done and not table.machines[PRODUCER].outbox.queue
    table.pass_time(10, step=0.2)
    assert all(table.machines[member].state == ENROLLED for member in (PRODUCER, ONE, TWO, THREE))


def test_of_two_routers_the_later_one_goes_on():
    table = figure_2()
    old, state = table.router, table.router.map.snapshot()
    table.router = Router(BusMap.restored(state), 2_000, table.now, old._random)
    table.machines[2_000] = table.router
    table.pass_time(1.2)
    assert old.state == FENCED and table.router.state != FENCED


def test_a_slot_may_be_connected_with_itself():
    """As in a chat: everybody in the slot gets it, also who has sent it, and may withhold it."""
    table = Table("bus a\nslot chat 0..4 { out say in hear asks q answers r }\nchat.say -> chat.hear\nchat.q -> chat.r")
    ann, _ = table.enroll(1, "chat"), table.enroll(2, "chat")
    for _ in range(2):  # with cold caches and warm ones
        queued = table.send(1, "say", b"hello")
        assert queued.counted == 2 and table.read(2, "hear") == [b"hello"] and not queued.done
        ann.withhold(ann.take_next("hear", table.now))
        table.pass_time(1)
        assert table.read(1, "hear") == [b"hello"] and queued.done
    asked = table.send(1, "q", b"who?", asks=True)
    arrived = ann.take_next("r", table.now)
    ann.acknowledge(arrived, (wrapped("I"), ""))
    assert [unwrapped(answer) for answer, _ in asked.answers] == ["I"]
    table.pass_time(1)
    assert table.read(1, "hear") == [] == table.read(2, "hear")
    table.validate()


def test_a_message_is_counted_anew_when_the_map_falls_back():
    """A forced primary may go on with an older map, whose versions and generations are lower."""
    outbox = SlotOutbox()
    queued = outbox.add("o", wrapped(b"x"), 0.0)
    outbox.count(1, (Leg(End("c", "in"), 10, 60.0, (7, 8), 5),), (3, 9))
    outbox.acknowledge(1, End("c", "in"), 7, 0.0)
    older = (Leg(End("c", "in"), 10, 60.0, (7,), 4),)
    outbox.count(1, older, (3, 8))
    assert not queued.done, "an answer that was overtaken"
    outbox.count_anew()
    outbox.count(1, older, (3, 8))
    assert queued.done, "ticket 8 was never issued in this life of the map"


def test_a_ticket_is_good_for_its_member_alone():
    """Everybody hears the numbers of all tickets."""
    table = figure_2()
    producer = table.machines[PRODUCER]
    connection = Connection(End("producer", "red"), End("consumer2", "in"))
    for word in (AddRoute(50, producer.ticket, "producer", connection), Dropout(producer.ticket, "producer")):
        table.router.take(ONE, word, table.now)
        table.settle()
    said = [word.kind for _, to, word in table.heard if to == ONE and isinstance(word, NegAck)]
    assert said == ["stale", "stale"]
    assert len(table.router.map.connections) == 3 and table.router.map.live("producer") == (producer.ticket,)


def test_routes_change_under_load_and_tables_stay_fresh():
    table = figure_2()
    producer = table.machines[PRODUCER]
    table.send(PRODUCER, "red", b"1")
    assert (table.read(ONE), table.read(TWO), table.read(THREE)) == ([b"1"], [], [b"1"])
    producer.route(77, Connection(End("producer", "red"), End("consumer2", "in")), table.now)
    producer.route(78, (End("producer", "red"), End("consumer1", "in")), table.now)
    table.settle()
    table.said.clear()
    table.send(PRODUCER, "red", b"2")
    assert (table.read(ONE), table.read(TWO), table.read(THREE)) == ([], [b"2"], [b"2"])
    assert not table.said[ReqRoute], "announcements kept the tables fresh"


def test_without_announcements_a_message_carries_the_version_of_the_map():
    table = Table(FIGURE_2.replace("bus figure2", "bus figure2 quiet"))
    for member, slot in ((PRODUCER, "producer"), (ONE, "consumer1"), (TWO, "consumer2"), (THREE, "consumer3")):
        table.enroll(member, slot)
    table.send(PRODUCER, "red", b"1"), [table.read(member) for member in (ONE, TWO, THREE)]
    table.machines[PRODUCER].route(77, Connection(End("producer", "red"), End("consumer2", "in")), table.now)
    table.settle()
    assert not any(isinstance(word, SlotChanged) for _, _, word in table.heard)
    table.send(PRODUCER, "red", b"2")
    table.pass_time(1)
    assert table.read(TWO) == [b"2"]


def test_a_router_answers_the_asker_or_all():
    for answers_all, asked in ((False, 3), (True, 1)):
        table = figure_2(answers_all=answers_all)
        table.lost = lambda sender, to, word: isinstance(word, SendData) and to in (TWO, THREE)
        table.send(PRODUCER, "red")
        table.lost = lambda sender, to, word: False
        table.send(PRODUCER, "red")
        assert table.said[ReqRoute] == asked
        answers = [to for _, to, word in table.heard if isinstance(word, AnsRoute)]
        assert all((to == 0) == answers_all for to in answers)


def test_source_routing_on_request():
    table = Table(FIGURE_2)
    table.enroll(PRODUCER, "producer"), table.enroll(ONE, "consumer1", trusts=True), table.enroll(THREE, "consumer3")
    queued = table.send(PRODUCER, "red", b"1", destinations=(End("consumer1", "in"),))
    assert table.said[ReqRoute] == 0 and queued.counted == 1, "a receiver that trusts it does not ask"
    assert table.read(ONE) == [b"1"] and table.read(THREE) == [] and queued.done
    with pytest.raises(BadInput, match="there is no slot 'consumer9'; did you mean"):
        table.send(PRODUCER, "red", destinations=(End("consumer9", "in"),))
    queued = table.send(PRODUCER, "red", b"2", destinations=(End("consumer3", "in"),))
    assert table.said[ReqRoute] == 1 and table.read(THREE) == [b"2"] and queued.done, "another ignores it, and asks"


def test_the_answer_returns_to_the_one_asker():
    table = Table("bus a\nslot c 0..3 { asks q }\nslot s { answers q }\nc.q -> s.q")
    askers = [table.enroll(member, "c") for member in (1, 2, 3)]
    server = table.enroll(4, "s")
    queued = [table.send(member, "q", f"from {member}", asks=True) for member in (1, 2, 3)]
    table.lost = lambda sender, to, word: isinstance(word, AckData) and to == 2
    while (arrived := server.take_next("q", table.now)) is not None:
        server.acknowledge(arrived, (wrapped(unwrapped(arrived.body).upper()), ""))
        table.settle()
    table.lost = lambda sender, to, word: False
    table.pass_time(1)
    assert [[unwrapped(answer) for answer, _ in one.answers] for one in queued] == [["FROM 1"], ["FROM 2"], ["FROM 3"]]
    assert all(not asker.outbox.queue for asker in askers)


def test_enrolment_is_refused_with_a_reason():
    table = figure_2()
    assert "has no slot 'consumer9'" in table.enroll(9, "consumer9").reason
    full = table.enroll(10, "consumer1")
    assert full.state == REFUSED and "has its 1 occupants" in full.reason
    with pytest.raises(BadInput, match="has no port 'blue' that is out: it has red, green"):
        table.send(PRODUCER, "blue")


KEYS = f"""bus a
role chief "{verifier("open", b"s" * 16, 5)}"
reconfigure chief
slot p {{ out o }}
slot c {{ enrol chief in in }}
slot d {{ in in }}
slot eye shadow 0..2
"""


def enroll_with(table, member, slot, passphrase):
    def answer(what, about):
        if what == "challenge":
            proofs = tuple((name, prove(passphrase, n, salt, about.challenge)) for name, n, salt in about.salts)
            table.machines[member].prove(about.challenge, proofs, table.now)

    found = table.enroll(member, slot, keyed=True, on_event=answer)
    table.pass_time(0.3)
    return found


def test_roles_are_proved_and_carried_by_the_ticket():
    table = Table(KEYS)
    assert "is for chief" in enroll_with(table, 1, "c", "wrong").reason
    chief = enroll_with(table, 2, "c", "open")
    assert chief.state == ENROLLED and chief.roles == ("chief",)
    plain, shadow = table.enroll(3, "p"), table.enroll(4, "eye")
    for occupant, allowed in ((plain, False), (chief, True), (shadow, True)):
        events = []
        occupant.on_event = lambda what, about, events=events: events.append((what, about))
        occupant.route(50, Connection(End("p", "o"), End("c", "in")), table.now)
        table.settle()
        said = next(about for what, about in events if what == "routed")[1]
        assert (said == "") is allowed, said


def test_a_map_is_saved_before_it_is_told():
    held = []
    table = Table(FIGURE_2, save=lambda snapshot, done: held.append((snapshot, done)))
    held.pop()[1](None)
    occupant = table.enroll(ONE, "consumer1")
    assert occupant.state != ENROLLED and len(held) == 1
    snapshot, done = held.pop()
    done(OSError("full"))
    table.pass_time(1)
    assert occupant.state != ENROLLED, "what is not on disk is not told"
    held.pop()[1](None)
    table.settle()
    assert occupant.state == ENROLLED
    assert BusMap.restored(snapshot).seats == table.router.map.seats


def test_a_bus_is_advertised_and_waits_for_required_slots():
    table = Table(FIGURE_2)
    table.settle()
    assert table.router.map.waiting() == ("producer",)
    table.enroll(PRODUCER, "producer")
    table.pass_time(1.2)
    adverts = [word for _, word in table.adverts if isinstance(word, Advertise)]
    assert [advert.waiting for advert in adverts] == [True, False] and adverts[-1].occupants == 1


ends = st.sampled_from([End("p", "o"), End("c", "in"), End("d", "in"), End("q", "x")])
commands = st.one_of(
    st.builds(Enrol, st.sampled_from(["p", "c", "d", "eye", "no"]), st.integers(1, 4), st.integers(1, 3)),
    st.builds(Leave, st.integers(1, 8), st.booleans()),
    st.builds(Expel, st.integers(1, 8)),
    st.builds(Connect, st.integers(1, 8), st.builds(Connection, ends, ends)),
    st.builds(Disconnect, st.integers(1, 8), ends, ends),
)


def with_a_ticket(command, tickets):
    """Small numbers stand for tickets that are there."""
    field = {Leave: "number", Expel: "number", Connect: "by", Disconnect: "by"}.get(type(command))
    if field is None or not tickets:
        return command
    ticket = tickets[getattr(command, field) % len(tickets)]
    return msgspec.structs.replace(command, **{field: ticket})


@given(st.lists(commands, max_size=40))
def test_a_map_is_the_same_when_commands_come_twice_and_after_a_restart(given_commands):
    plan = plan_of(KEYS.replace("enrol chief", ""))
    one, other = BusMap(plan), BusMap(plan)
    for chosen in given_commands:
        command = with_a_ticket(chosen, list(one.seats))
        outcome = one.apply(command)
        assert type(other.apply(command)) is type(outcome)
        if not isinstance(outcome, Denied):
            before = other.snapshot()
            other.apply(command)
            assert other.snapshot() == before
        other = BusMap.restored(other.snapshot())
        one.validate()
    assert one.snapshot() == other.snapshot()
