"""Secure, one frame at a time: what is read, by whom, and what is refused."""

import logging
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.core import limits
from pluribus.core.errors import BadStack
from pluribus.core.frame import Frame
from pluribus.core.ids import ALL, MemberId
from pluribus.layers.secure import Secure
from pluribus.layers.secure import layer as layer_module
from pluribus.layers.secure.headers import BUS, PAIR, Greet, Hello, Sealed
from pluribus.layers.secure.keys import BadKey, Keys, view_key_name
from pluribus.layers.secure.replay import ReplayWindow
from pluribus.layers.transport import REASONS, Transport
from pluribus.stack.events import Addresses, Rekey
from tests.harness import Medium, Member
from tests.layers.sealed import OTHER, SECRET, Bare, Top, acquainted, recorded, sealed_frames


def two() -> tuple[Medium, Bare, Bare]:
    medium = Medium()
    a, b = Bare(medium, "a"), Bare(medium, "b")
    acquainted(medium, a, b)
    return medium, a, b


# Replay windows


@given(st.lists(st.integers(1, 3 * limits.REPLAY_WINDOW), max_size=300), st.integers(0, 1 << 30))
def test_a_window_accepts_each_counter_once_and_none_that_is_too_old(counters: list[int], seed: int):
    chance = Random(seed)
    window, seen, top = ReplayWindow(), set(), 0
    for counter in counters:
        expected = counter not in seen and top - counter < limits.REPLAY_WINDOW
        assert window.fresh(counter) == expected
        if expected and chance.random() < 0.9:  # else it did not open, and the counter is not believed
            window.note(counter)
            seen.add(counter)
            top = max(top, counter)


def test_a_window_can_begin_late():
    window = ReplayWindow(10_000)
    assert not window.fresh(10_000) and not window.fresh(9_999)
    assert window.fresh(10_001)
    window.note(20_000)
    assert window.fresh(19_999)
    window.close(15_000)
    assert not window.fresh(19_999) and window.fresh(20_001), "it never goes back"


# Sealing


def test_frames_arrive_as_they_were_and_nothing_of_them_is_seen_on_the_way():
    medium, a, b = two()
    copies = recorded(medium)
    secrets = [b"a word to all", b"a word to one", b"a message of a group"]
    a.say(secrets[0])
    a.say(secrets[1], to=b.me)
    a.say(secrets[2], group=7, count=1)
    medium.deliver()
    assert b.top.texts == secrets
    assert [(frame.sender, frame.to, frame.group) for frame in b.top.got] == [
        (a.me, ALL, 0),
        (a.me, b.me, 0),
        (a.me, ALL, 7),
    ]
    assert len(copies) == 3 and not any(secret in data for data in copies for secret in secrets)
    assert all(frame.group == 0 and frame.count == 0 for frame, _ in sealed_frames(b, copies)), "not even the group"


def test_a_frame_for_one_member_is_sealed_for_it_alone():
    medium, a, b = two()
    c = Bare(medium, "c")
    acquainted(medium, a, b, c)
    copies = recorded(medium)
    a.say(b"for b", to=b.me)
    medium.deliver()
    ((frame, sealed),) = sealed_frames(b, copies)
    assert sealed.key == PAIR and sealed.hello is None
    forwarded = Frame(sender=frame.sender, to=c.me, headers=[sealed], bodies=frame.bodies)
    c.engine.receive([(c.stack.node.codec.encode(forwarded), ("a", 0))])
    assert not c.top.got and c.stats("secure")["refused"] == 1


@pytest.mark.parametrize("kind", ["bus", "pair", "view"])
def test_a_change_of_any_bit_is_refused_and_the_frame_itself_still_passes(kind: str):
    medium, a, b = two()
    if kind == "view":
        enter(medium, (5, a.me), a, b)
    a.say(b"text", to=b.me if kind == "pair" else ALL, count=int(kind == "view"))
    ((data, source, _),) = medium.waiting
    ((_, sealed),) = sealed_frames(b, [data])
    assert {"bus": sealed.key == BUS, "pair": sealed.key == PAIR, "view": sealed.key > PAIR}[kind]
    for at in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            b.engine.receive([(bytes(changed), source)])
            assert not b.top.got, f"bit {bit} of byte {at}"
    assert b.stats("transport")["faulty"] == 0
    b.engine.receive([(data, source)])
    assert b.top.texts == [b"text"]
    b.stack.validate()


@given(st.binary(max_size=300))
@settings(max_examples=100)
def test_junk_is_refused(junk: bytes):
    _, a, b = two()
    frame = Frame(sender=a.me, headers=[Sealed(BUS, 999)], bodies=[junk])
    b.engine.receive([(b.stack.node.codec.encode(frame), ("a", 0))])
    assert b.stats("secure")["refused"] == 1 and b.stats("transport")["faulty"] == 0


def test_what_is_sealed_must_be_the_frame_that_carries_it():
    medium, a, b = two()
    secure = a.secure
    inner = Frame(sender=77, to=b.me, headers=[])  # a member that pretends to be another to the layers above
    a.stack.run(lambda: secure._send_to_one(inner))
    medium.deliver()
    assert not b.top.got and b.stats("secure")["refused"] == 1


def test_frames_in_clear_are_refused():
    _, a, b = two()
    for frame in (Frame(sender=a.me), Frame(sender=a.me, headers=[Greet(1, 2)]), Frame(sender=9)):
        b.engine.receive([(b.stack.node.codec.encode(frame), ("a", 0))])
    assert b.stats("secure")["refused"] == 3 and not b.top.got


# Replays


@settings(max_examples=50)
@given(st.integers(0, 1 << 30), st.integers(1, 40))
def test_each_frame_is_accepted_once_in_any_order(seed: int, count: int):
    chance = Random(seed)
    medium, a, b = two()
    for number in range(count):
        a.say(b"%d" % number, to=chance.choice([ALL, b.me]))
    arriving = [(data, source) for data, source, target in medium.waiting if target == ("b", 0)] * 3
    medium.waiting.clear()
    chance.shuffle(arriving)
    b.engine.receive(arriving)
    assert sorted(b.top.texts) == sorted(b"%d" % number for number in range(count))
    assert b.stats("secure")["replayed"] == 2 * count


def test_frames_of_somebody_who_is_gone_do_not_bring_it_back():
    medium, a, _ = two()
    copies = recorded(medium)
    a.say(b"I am here")
    medium.deliver()
    a.crash()
    c = Bare(medium, "c")
    for data in copies:
        c.engine.receive([(data, ("a", 0))])
    medium.run(3)
    assert not c.top.got, "a recording opens, but does not answer a challenge"
    assert c.stats("secure") | {"strangers": 1, "proven": 0} == c.stats("secure")
    c.stack.validate()


def test_a_stranger_s_latest_frames_wait_for_its_proof():
    medium = Medium()
    a, b = Bare(medium, "a"), Bare(medium, "b")
    for number in range(limits.HELD_PER_STRANGER_MAX + 3):
        a.say(b"%d" % number)
    medium.deliver()
    assert b.top.texts == [b"%d" % number for number in range(3, limits.HELD_PER_STRANGER_MAX + 3)]


def test_what_is_older_than_the_window_allows_does_not_wait_for_a_proof():
    medium = Medium()
    a, b = Bare(medium, "a"), Bare(medium, "b")
    a.say(b"old")
    old = medium.waiting.pop()[0]
    a.secure._counter += limits.REPLAY_WINDOW
    a.say(b"new")
    b.engine.receive([(old, ("a", 0))])
    medium.deliver()
    assert b.top.texts == [b"new"]


def test_a_challenge_is_repeated_and_then_waits_for_the_next_frame():
    medium = Medium()
    a, b = Bare(medium, "a"), Bare(medium, "b")
    medium.lose = lambda data, source, target: target == ("a", 0)
    a.say(b"hello")
    medium.run(5)
    assert b.secure._strangers and not b.secure._peers
    asked = b.stats("secure")["sealed"]
    assert asked == layer_module.GREETINGS_MAX
    medium.run(5)
    assert b.stats("secure")["sealed"] == asked, "a silent stranger is left alone"
    medium.lose = lambda data, source, target: False
    a.say(b"hello again")
    medium.deliver()
    assert b.top.texts[-1] == b"hello again"


def test_who_was_forgotten_proves_itself_again_and_its_old_frames_stay_refused():
    medium, a, b = two()
    copies = recorded(medium)
    a.say(b"once", to=b.me)
    a.say(b"to all")
    medium.deliver()
    medium.clock.advance(layer_module.FORGET_S + 1)
    b.stack.run(lambda: b.secure.event_down(Addresses({})))
    assert not b.secure._peers
    a.say(b"again")
    medium.deliver()
    for data in copies[:2]:
        b.engine.receive([(data, ("a", 0))])
    assert b.top.texts == [b"once", b"to all", b"again"]


def test_those_who_only_looked_in_keep_nobody_out(monkeypatch: pytest.MonkeyPatch):
    """Whoever asks how members are proves itself to them and is gone; where nobody joins or leaves meanwhile, nobody
    above says so."""
    medium, a, b = two()
    b.stack.run(lambda: b.secure.event_down(Addresses({a.me: ("a", 0)})))
    monkeypatch.setattr(layer_module, "PEERS_MAX", 4)
    for number in range(3):
        visitor = Bare(medium, f"visitor {number}")
        visitor.say(b"how are you?")
        medium.deliver()
        visitor.crash()
    early = Bare(medium, "early")
    early.say(b"full")
    medium.deliver()
    assert early.me not in b.secure._peers, "who was here lately is not forgotten"
    early.crash()
    medium.clock.advance(layer_module.FORGET_S + 1)
    late = Bare(medium, "late")
    late.say(b"let me in")
    medium.deliver()
    assert b.top.texts[-1] == b"let me in"
    assert b.secure._peers.keys() == {a.me, late.me}, "whom somebody above knows is not forgotten"
    b.stack.validate()


# Nonces


def spied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Every key with every nonce that it was used with to seal."""
    from pluribus.layers.secure import keys

    used: list[tuple[bytes, bytes]] = []
    real = keys.AESGCM

    class Spy:
        def __init__(self, key: bytes) -> None:
            self._key, self._real = key, real(key)
            self.decrypt = self._real.decrypt

        def encrypt(self, nonce: bytes, data: bytes, about: bytes) -> bytes:
            used.append((self._key, nonce))
            return self._real.encrypt(nonce, data, about)

    monkeypatch.setattr(keys, "AESGCM", Spy)
    return used


def test_no_key_is_used_with_a_nonce_twice(monkeypatch: pytest.MonkeyPatch):
    used = spied(monkeypatch)
    medium = Medium()
    members = [Bare(medium, name) for name in "abc"]
    acquainted(medium, *members)
    chance = Random(1)
    for number in range(300):
        one = chance.choice(members)
        one.say(b"x", to=chance.choice([ALL, *(other.me for other in members if other is not one)]), count=number % 2)
        if number % 50 == 10:
            enter(medium, (number, members[number % 3].me), *members)
        if number % 50 == 40:  # state is lost, counters are not
            medium.clock.advance(layer_module.FORGET_S + 1)
            one.stack.run(lambda one=one: one.secure.event_down(Addresses({})))
        medium.deliver()
    assert len(used) > 400
    assert len(set(used)) == len(used)
    assert len({key for key, _ in used}) > 20


# Views


def enter(medium: Medium, view: tuple[int, int], *members: Bare) -> None:
    """As the membership would."""
    event = Rekey(view, tuple(member.me for member in members))
    for member in members:
        member.stack.run(lambda member=member: member.secure.event_down(event))
    medium.deliver()


def test_messages_are_for_the_members_of_the_view_alone():
    medium = Medium()
    a, b, c = (Bare(medium, name) for name in "abc")
    acquainted(medium, a, b, c)
    enter(medium, (1, a.me), a, b, c)
    a.say(b"for three", count=1)
    enter(medium, (2, a.me), a, b)
    a.say(b"for two", count=1)
    a.say(b"for everybody")
    medium.deliver()
    assert b.top.texts == [b"for three", b"for two", b"for everybody"]
    assert c.top.texts == [b"for three", b"for everybody"]
    for member in (a, b, c):
        member.stack.validate()


def test_a_newcomer_never_gets_an_older_key():
    medium = Medium()
    a, b, c = (Bare(medium, name) for name in "abc")
    acquainted(medium, a, b, c)
    enter(medium, (1, a.me), a, b)
    copies = recorded(medium)
    a.say(b"before", count=1)
    medium.deliver()
    enter(medium, (2, a.me), a, b, c)
    for data in copies:
        c.engine.receive([(data, ("a", 0))])
    assert not c.top.got
    key = a.secure._rings._old[0].key
    c.stack.run(lambda: c.secure._tell(a.me, layer_module.KeyWanted((1, a.me))))
    medium.deliver()
    assert view_key_name(key) not in c.secure._rings.by_name


def test_what_is_sent_before_the_key_is_there_waits_for_it():
    medium, a, b = two()
    event = Rekey((3, a.me), (a.me, b.me))
    b.stack.run(lambda: b.secure.event_down(event))
    b.say(b"early", count=1)
    assert not medium.waiting
    b.stack.validate()
    a.stack.run(lambda: a.secure.event_down(event))
    medium.deliver()
    assert a.top.texts == [b"early"]


def test_what_arrives_before_the_key_waits_for_it():
    medium, a, b = two()
    event = Rekey((3, a.me), (a.me, b.me))
    a.stack.run(lambda: a.secure.event_down(event))
    a.say(b"early", count=1)
    key, message = medium.waiting
    medium.waiting[:] = [message, key]
    medium.deliver()
    assert not b.top.got, "the key waits for the view"
    b.stack.run(lambda: b.secure.event_down(event))
    assert b.top.texts == [b"early"]


def test_a_lost_key_is_asked_for():
    medium, a, b = two()
    medium.lose = lambda data, source, target: source == ("a", 0)
    enter(medium, (3, a.me), a, b)
    medium.lose = lambda data, source, target: False
    b.say(b"text", count=1)
    medium.run(layer_module.KEY_S * 1.5)
    assert a.top.texts == [b"text"]


def test_if_the_leader_is_gone_another_member_has_the_key():
    medium = Medium()
    a, b, c = (Bare(medium, name) for name in "abc")
    acquainted(medium, a, b, c)
    medium.lose = lambda data, source, target: target == ("c", 0)
    enter(medium, (3, a.me), a, b, c)
    a.crash()
    medium.lose = lambda data, source, target: False
    c.say(b"text", count=1)
    medium.run(layer_module.KEY_S * 30)
    assert b.top.texts == [b"text"]


def test_a_key_is_given_to_members_of_its_view_only_and_taken_from_them_only():
    medium = Medium()
    a, b, c = (Bare(medium, name) for name in "abc")
    acquainted(medium, a, b, c)
    enter(medium, (3, a.me), a, b)
    c.stack.run(lambda: c.secure._tell(b.me, layer_module.KeyWanted((3, a.me))))
    medium.deliver()
    assert not c.secure._rings.by_name and not c.secure._rings._early
    event = Rekey((4, a.me), (a.me, b.me))
    b.stack.run(lambda: b.secure.event_down(event))
    c.stack.run(lambda: c.secure._tell(b.me, layer_module.ViewKey((4, a.me), bytes(32))))
    medium.deliver()
    assert b.secure._rings.current is None


def test_old_keys_are_few_and_do_not_last():
    medium, a, b = two()
    for number in range(1, 10):
        enter(medium, (number, a.me), a, b)
        assert len(b.secure._rings.by_name) <= limits.OLD_KEYS_MAX + 1
        b.stack.validate()
    medium.clock.advance(limits.OLD_KEY_S_MAX + 1)
    assert len(b.secure._rings.by_name) == 1
    b.stack.validate()


def test_who_uses_the_key_of_a_view_without_being_in_it_is_refused():
    medium = Medium()
    a, b, c = (Bare(medium, name) for name in "abc")
    acquainted(medium, a, b, c)
    enter(medium, (3, a.me), a, b)
    ring = b.secure._rings.current
    assert ring is not None
    c.secure._rings.enter((3, a.me), (a.me, b.me, c.me))
    c.secure._rings.take(ring.key)  # it was betrayed
    c.secure._with_views = True
    c.say(b"text", count=1)
    medium.deliver()
    assert not b.top.got and b.stats("secure")["refused"] == 1


def test_frames_of_views_that_this_member_is_not_in_are_bounded():
    _, a, b = two()
    for number in range(3 * limits.HELD_FRAMES_MAX):
        frame = Frame(sender=a.me, headers=[Sealed(1 << 62, number + 1)], bodies=[b"x"])
        b.engine.receive([(b.stack.node.codec.encode(frame), ("a", 0))])
    b.stack.validate()
    assert b.stats("secure")["unopened"] == 2 * limits.HELD_FRAMES_MAX


def test_frames_that_wait_for_a_key_are_bounded():
    _, a, b = two()
    b.stack.run(lambda: b.secure.event_down(Rekey((3, a.me), (a.me, b.me))))
    for _ in range(2 * limits.HELD_FRAMES_MAX):
        b.say(b"x", count=1)
    b.stack.validate()
    assert b.stats("secure")["unsent"] == limits.HELD_FRAMES_MAX


# Refusals


def test_both_sides_are_told_of_another_secret(caplog: pytest.LogCaptureFixture):
    medium = Medium()
    a, b = Bare(medium, "a"), Bare(medium, "b", OTHER)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            a.say(b"hello")
            b.say(b"hello")
            medium.run(2)
    assert not a.top.got and not b.top.got
    here, there = MemberId(a.me), MemberId(b.me)
    for one, other in ((here, there), (there, here)):
        assert caplog.text.count(f"{one} refused {other}: it has another bus secret") == 1
        assert caplog.text.count(f"{one} was refused by {other}: {REASONS[1]}") == 1
    assert a.stats("secure")["refused"] == 5


def test_both_sides_are_told_when_only_one_has_a_secret(caplog: pytest.LogCaptureFixture):
    medium = Medium()
    a = Bare(medium, "a")
    b = Member(medium, "b", layers=[Transport(), Top()]).start()
    with caplog.at_level(logging.WARNING):
        top = b.layer(Top)
        b.stack.run(lambda: top.pass_down(Frame(sender=b.me)))
        medium.deliver()
    here, there = MemberId(a.me), MemberId(b.me)
    assert f"{here} refused {there}: its frames are in clear" in caplog.text
    assert f"{there} was refused by {here}: {REASONS[1]}" in caplog.text


def test_refusals_are_sent_at_a_bounded_rate():
    medium, _, b = two()
    for sender in range(100, 200):
        b.engine.receive([(b.stack.node.codec.encode(Frame(sender=sender)), ("x", sender))] * 3)
    assert b.stats("secure")["refused"] == 300
    assert b.stats("transport")["datagrams_out"] == 0  # the harness counts none
    assert len(b.layer(Transport)._refused) == limits.REFUSALS_PER_S_MAX
    medium.clock.advance(1.1)
    b.engine.receive([(b.stack.node.codec.encode(Frame(sender=99)), ("x", 99))])
    assert b.layer(Transport)._refused == {99}


def test_one_forged_datagram_does_not_keep_a_member_out():
    medium = Medium()
    a, b = Bare(medium, "a"), Bare(medium, "b")
    forged = b.stack.node.codec.encode(Frame(sender=a.me))
    b.engine.receive([(forged, ("the attacker", 1))])
    a.say(b"here I am")
    medium.deliver()
    assert b.top.texts == [b"here I am"]


def test_strangers_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layer_module, "STRANGERS_MAX", 3)
    _, _, b = two()
    keys = [Keys(SECRET, "demo", sender, Random(sender)) for sender in range(100, 110)]
    for sender, its in enumerate(keys, 100):
        frame = Frame(sender=sender, headers=[Sealed(BUS, 1, its.hello)], bodies=[b"junk"])
        b.engine.receive([(b.stack.node.codec.encode(frame), ("x", sender))])
    assert len(b.secure._strangers) == 3 and len(b.secure._peers) == 1
    b.stack.validate()


def test_another_public_key_for_a_known_member_is_refused():
    _, a, b = two()
    hello = Hello(bytes(32), bytes(32))
    frame = Frame(sender=a.me, headers=[Sealed(BUS, 99, hello)], bodies=[b"x"])
    b.engine.receive([(b.stack.node.codec.encode(frame), ("a", 0))])
    assert b.stats("secure")["refused"] == 1 and b.secure._peers


def test_a_proof_is_for_one_member_one_key_and_one_bus():
    keys = Keys(SECRET, "demo", 5, Random(1))
    assert keys.is_proven(5, keys.hello)
    assert not keys.is_proven(6, keys.hello)
    assert not Keys(SECRET, "another", 6, Random(1)).is_proven(5, keys.hello)
    assert not Keys(OTHER, "demo", 6, Random(1)).is_proven(5, keys.hello)
    with pytest.raises(BadKey):
        keys.pair_ciphers(6, bytes(32))


def test_random_bits_alone_do_not_give_the_keys():
    """What a trace records of chance is not enough to work out a key."""
    one, other = Keys(SECRET, "demo", 5, Random(1)), Keys(OTHER, "demo", 5, Random(1))
    assert one.hello.public != other.hello.public
    assert one.new_key(b"view") != other.new_key(b"view")


# The layer in a stack


def test_the_secret_is_never_an_option(caplog: pytest.LogCaptureFixture):
    assert str(Secure(SECRET)) == "secure"
    for wrong in ({}, {"secret": "text in a specification"}, {"key": "whatever it is"}):
        with pytest.raises(BadStack) as refused:
            Secure(**wrong)  # type: ignore[arg-type]
        assert "specification" not in str(refused.value) and "whatever" not in str(refused.value)
