"""Presence: members find each other, lose each other and refuse each other, on a medium and a clock in the hand."""

import logging
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core.errors import TooLarge
from pluribus.core.events import Event, Gone
from pluribus.core.frame import Frame
from pluribus.core.ids import number_of
from pluribus.core.limits import HELLO_PERIOD_S, SILENCE_S
from pluribus.group.dispatch import Dispatch
from pluribus.layers import presence as presence_module
from pluribus.layers.presence import Bye, Hello, Presence, Refusal
from pluribus.layers.transport import Transport
from tests.harness import Medium, Member

PLAIN = "transport | presence | groups"


def people(medium: Medium, *names: str, stack: str = PLAIN) -> list[Member]:
    return [Member(medium, name, stack).start() for name in names]


def known(member: Member) -> set[str]:
    """Who a member thinks is on the bus, by name."""
    return set(member.layer(Dispatch).members[0].names.values())


def in_group(member: Member, group: str) -> set[str]:
    told = member.layer(Dispatch).members.get(number_of(group))
    return set(told.names.values()) if told else set()


def gone(told: list[Event]) -> list[Event]:
    return [event for event in told if isinstance(event, Gone)]


def join(member: Member, group: str) -> None:
    member.layer(Dispatch).join(group)


def leave(member: Member, group: str) -> None:
    member.layer(Dispatch).leave(member.layer(Dispatch).channels[number_of(group)])


# --- finding --------------------------------------------------------------------------------------------------------


def test_a_member_alone_knows_itself():
    (a,) = people(Medium(), "a")
    assert known(a) == {"a"}


def test_a_newcomer_knows_everybody_after_one_round_trip():
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.deliver()
    (c,) = people(medium, "c")
    assert len(medium.waiting) == 2, "one hello to each"
    medium.deliver_next()
    medium.deliver_next()
    assert known(a) == known(b) == {"a", "b", "c"}
    assert len(medium.waiting) == 2, "one answer of each"
    medium.deliver()
    assert known(c) == {"a", "b", "c"}
    for member in (a, b, c):
        member.stack.validate()


def test_hellos_are_repeated_so_that_a_lost_one_does_not_matter():
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.lose = lambda data, source, target: True
    medium.deliver()
    assert known(a) == {"a"}
    medium.lose = lambda data, source, target: False
    medium.run(HELLO_PERIOD_S * 1.2)
    assert known(a) == known(b) == {"a", "b"}


def test_groups_are_told_when_they_change_to_those_who_are_in_them():
    medium = Medium()
    a, b, c = people(medium, "a", "b", "c")
    join(a, "x")
    join(b, "x")
    medium.deliver()
    assert in_group(a, "x") == in_group(b, "x") == {"a", "b"}
    assert in_group(c, "x") == set(), "whoever is not in a group need not know"
    join(c, "x")
    assert in_group(c, "x") == {"a", "b", "c"}, "but knows at once when it joins"
    medium.deliver()
    leave(a, "x")
    medium.deliver()
    assert in_group(b, "x") == in_group(c, "x") == {"b", "c"}
    assert in_group(a, "x") == set()


def test_a_hundred_hellos_in_one_batch_of_datagrams_make_one_view():
    medium = Medium()
    (a,) = people(medium, "a")
    join(a, "x")
    channel = a.layer(Dispatch).channels[number_of("x")]
    views = [channel.view.number]
    channel.on_view = lambda view: views.append(view.number)
    hellos = []
    for number in range(100):
        hello = Hello(1, f"m{number}", (f"m{number}", 0), a.stack.node.fingerprint, [number_of("x")], False)
        hellos.append((a.stack.node.codec.encode(Frame(sender=1_000 + number, headers=[hello])), ("m", number)))
    a.engine.receive(hellos)
    assert len(views) == 2
    assert len(channel.view) == 101
    assert len(a.engine.peers) == 100


def test_a_hello_overtaken_by_a_newer_one_changes_nothing():
    medium = Medium()
    a, b = people(medium, "a", "b")
    join(a, "x")
    medium.deliver()
    join(b, "x")
    old = medium.waiting.pop()
    leave(b, "x")
    medium.deliver()
    medium.waiting.append(old)
    medium.deliver()
    assert in_group(a, "x") == {"a"}


# --- losing ---------------------------------------------------------------------------------------------------------


def test_a_bye_takes_a_member_off_at_once_and_for_good():
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.deliver()
    told: list[Event] = []
    a.layer(Dispatch).on_event = told.append
    join(b, "x")
    overtaken = medium.waiting.pop()
    b.stack.stop()
    medium.deliver()
    assert known(a) == {"a"}
    assert gone(told) == [Gone(b.me, "it left", "b")]
    medium.waiting.append(overtaken)
    medium.deliver()
    assert known(a) == {"a"}, "a hello that the bye overtook is no return"
    assert a.stats("presence")["ignored"] == 1
    a.stack.validate()


def test_silence_takes_a_member_off():
    medium = Medium()
    a, b, c = people(medium, "a", "b", "c")
    medium.deliver()
    told: list[Event] = []
    a.layer(Dispatch).on_event = told.append
    b.crash()
    medium.run(SILENCE_S - 2 * HELLO_PERIOD_S)
    assert known(a) == {"a", "b", "c"}, "not too early"
    medium.run(3 * HELLO_PERIOD_S)
    assert known(a) == known(c) == {"a", "c"}
    assert gone(told) == [Gone(b.me, f"nothing heard of it for {SILENCE_S:g} s", "b")]


def test_a_member_that_was_cut_off_is_found_again():
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.deliver()
    medium.lose = lambda data, source, target: True
    medium.run(SILENCE_S + 2 * HELLO_PERIOD_S)
    assert known(a) == {"a"} and known(b) == {"b"}
    medium.lose = lambda data, source, target: False
    medium.run(2 * HELLO_PERIOD_S)
    assert known(a) == known(b) == {"a", "b"}


def test_any_frame_of_a_member_is_a_sign_of_life():
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.deliver()
    hello_bytes = 60
    medium.lose = lambda data, source, target: source == ("b", 0) and len(data) > hello_bytes
    for _ in range(int(2 * SILENCE_S)):
        b.stack.run(lambda: b.layer(Dispatch).pass_down(Frame(sender=b.me, group=9, count=1, bodies=[b""])))
        medium.run(1.0)
    assert known(a) == {"a", "b"}


def test_its_own_lateness_is_no_silence_of_others():
    """A pause of this member leaves the others' hellos unread: they are not suspected, and then really heard."""
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.run(3.0)
    # The process of a stands still for twice the silence: its timers fire late, before its datagrams are read.
    late = 2 * SILENCE_S
    b_speaks = [entry for entry in medium.clock._heap if entry[2].callback is not None]
    medium.clock._now += late
    for _, _, timer in sorted(b_speaks, key=lambda entry: entry[:2]):
        callback, timer.callback = timer.callback, None
        assert callback is not None
        callback()
    assert known(a) == {"a", "b"}
    medium.deliver()
    assert known(a) == known(b) == {"a", "b"}
    b.crash()
    medium.run(SILENCE_S + late)
    assert known(a) == {"a"}, "silence after the pause is silence"


def test_who_fell_silent_during_a_pause_is_missed_soon_after_it():
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.run(3.0)
    b.layer(Presence)._say_hello(a.me, answer=False)
    b.layer(Transport).settle()
    b.crash()
    # The process of a stands still for a minute; what waits in its socket is read before its timers fire.
    due = sorted((entry for entry in medium.clock._heap if entry[2].callback is not None), key=lambda entry: entry[:2])
    medium.clock._now += 60.0
    medium.deliver()
    for _, _, timer in due:
        callback, timer.callback = timer.callback, None
        assert callback is not None
        callback()
    assert known(a) == {"a", "b"}
    medium.run(SILENCE_S + 2 * HELLO_PERIOD_S)
    assert known(a) == {"a"}, "and not a minute later"


# --- refusing -------------------------------------------------------------------------------------------------------

OTHER = "transport | presence | window | groups"


def test_members_with_other_stacks_refuse_each_other_with_the_reason(caplog: pytest.LogCaptureFixture):
    medium = Medium()
    with caplog.at_level(logging.WARNING):
        (a,) = people(medium, "a")
        (b,) = people(medium, "b", stack=OTHER)
        medium.run(5 * HELLO_PERIOD_S)
    assert known(a) == {"a"} and known(b) == {"b"}
    assert a.stats("presence")["refusals"] + b.stats("presence")["refusals"] >= 1
    assert a.stack.node.fingerprint in caplog.text and b.stack.node.fingerprint in caplog.text
    assert "give both the same stack and release" in caplog.text
    sides = {record.args[0] for record in caplog.records}  # type: ignore[index]
    assert sides == {a.me, b.me}, "each side says whom it does not count"
    assert len(caplog.records) == 2, "once, not once a second"
    a.stack.validate()
    b.stack.validate()


def test_a_refusal_is_heard_by_the_refused(caplog: pytest.LogCaptureFixture):
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.deliver()
    reason = Refusal("because")
    with caplog.at_level(logging.WARNING):
        b.stack.run(lambda: b.layer(Presence).pass_down(Frame(sender=b.me, to=a.me, headers=[reason])))
        medium.deliver()
    assert known(a) == {"a"}
    assert "because" in caplog.text


def test_the_reason_of_a_refusal_fits_the_shortest_path():
    medium = Medium()
    a = Member(medium, "a", PLAIN, path_bytes=576).start()
    medium.waiting.clear()
    hello = Hello(1, "\U000e0000" * 128, ("x", 1), "\U0001f600" * 64, [], True)
    a.engine.receive([(a.stack.node.codec.encode(Frame(sender=5, headers=[hello])), ("x", 1))])
    assert a.stats("presence")["refusals"] == 1
    ((data, _, target),) = medium.waiting
    assert target == ("x", 1)
    assert isinstance(a.stack.node.codec.decode(data).headers[0], Refusal)


def test_frames_of_strangers_are_dropped_and_the_stranger_is_asked_once_a_period():
    medium = Medium()
    a, b = people(medium, "a", "b")
    medium.waiting.clear()
    data = a.stack.node.codec.encode(Frame(sender=b.me, group=1, count=1, bodies=[b"x"]))
    for _ in range(10):
        a.engine.receive([(data, ("b", 0))])
    assert a.stats("presence")["strangers"] == 10
    assert a.stats("groups")["unwanted"] == 0
    assert len(medium.waiting) == 1
    medium.deliver()
    assert known(a) == known(b) == {"a", "b"}


# --- bounds ---------------------------------------------------------------------------------------------------------


def hello_from(a: Member, sender: int, groups: list[int] | None = None, fingerprint: str | None = None) -> None:
    print_of = a.stack.node.fingerprint if fingerprint is None else fingerprint
    hello = Hello(sender, f"m{sender}", (f"m{sender}", 0), print_of, groups or [], False)
    a.engine.receive([(a.stack.node.codec.encode(Frame(sender=sender, headers=[hello])), ("m", 0))])


def test_peers_refused_and_left_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(presence_module, "PEERS_MAX", 10)
    monkeypatch.setattr(presence_module, "LEFT_MAX", 10)
    (a,) = people(Medium(), "a")
    for sender in range(100, 150):
        hello_from(a, sender)
        hello_from(a, sender + 1_000, fingerprint="other")
        a.engine.receive([(a.stack.node.codec.encode(Frame(sender=sender + 2_000, headers=[Bye()])), ("m", 0))])
        a.engine.receive([(a.stack.node.codec.encode(Frame(sender=sender + 3_000, group=5)), ("m", 0))])
    assert a.stats("presence")["peers"] == 10
    assert a.stats("presence")["refusals"] == 10
    assert a.stats("presence")["ignored"] == 80
    a.stack.validate()


def test_memberships_are_bounded_and_a_member_keeps_those_it_had(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(presence_module, "MEMBERSHIPS_MAX", 10)
    (a,) = people(Medium(), "a")
    hello_from(a, 100, [1, 2, 3, 4])
    hello_from(a, 101, [5, 6, 7, 8])
    hello_from(a, 102, [1, 9, 10])
    assert a.stats("presence")["ignored"] == 1
    assert a.stats("presence")["peers"] == 3, "known, though not in its groups"
    a.stack.validate()


def test_a_member_can_be_in_as_many_groups_as_its_hello_can_tell():
    medium = Medium()
    (b,) = people(medium, "b")
    a = Member(medium, "a", PLAIN, path_bytes=576).start()
    joined = 0
    with suppress(TooLarge):
        while joined < 1_000:
            join(a, f"g{joined}")
            joined += 1
    assert 20 < joined < 100
    with pytest.raises(TooLarge, match=rf"can be in {joined} groups: leave one, or use a longer path="):
        join(a, f"g{joined}")
    assert len(a.layer(Dispatch).channels) == joined, "the one too many was not half joined"
    leave(a, "g0")
    join(a, f"g{joined}")
    medium.deliver()
    assert a.stats("transport")["faulty"] == b.stats("transport")["malformed"] == 0


@settings(max_examples=40)
@given(st.data())
def test_whatever_is_lost_for_a_while_all_agree_in_the_end(data: st.DataObject):
    """The promise: in the absence of changes, members that reach each other know each other's groups."""
    medium = Medium()
    members = people(medium, "a", "b", "c", "d")
    groups = ["x", "y"]
    expected: dict[str, set[str]] = {group: set() for group in groups}
    chance = data.draw(st.randoms(use_true_random=False))
    medium.lose = lambda *_: chance.random() < 0.5
    for _ in range(data.draw(st.integers(0, 12))):
        member, group = data.draw(st.sampled_from(members)), data.draw(st.sampled_from(groups))
        if member.name in expected[group]:
            leave(member, group)
            expected[group].remove(member.name)
        else:
            join(member, group)
            expected[group].add(member.name)
        medium.run(data.draw(st.floats(0, 3)))
    medium.lose = lambda *_: False
    medium.run(SILENCE_S + 2 * HELLO_PERIOD_S)
    for member in members:
        member.stack.validate()
        assert known(member) == {"a", "b", "c", "d"}
        for group in groups:
            assert in_group(member, group) == (expected[group] if member.name in expected[group] else set())
