"""The window and membership: streams end with it, and whoever comes back is heard again, and nothing twice."""

from pluribus.core.frame import Frame
from pluribus.core.ids import number_of
from pluribus.core.limits import SILENCE_S
from pluribus.layers.window import Ack, Granted
from tests.layers.talkers import GROUP, is_presence
from tests.layers.test_window import BODY, fill, pair


def test_whoever_leaves_a_group_and_comes_back_is_heard_and_numbers_go_on():
    medium, a, b = pair()
    used = [a.send(b"before %d" % number) for number in range(5)]
    a.turn()
    medium.deliver()
    a.leave()
    a.join()
    medium.deliver()
    used += [a.send(b"after"), a.send(b"to you", to=b.me)]
    a.turn()
    medium.deliver()
    b.read()
    assert b.bodies[5:] == [b"after", b"to you"]
    assert b.window.lost == b.window.late == 0
    assert len(set(used)) == 7, "no identity is used twice in a group"


def test_a_return_that_nobody_noticed_is_heard_too():
    medium, a, b = pair()
    a.send(b"before")
    a.turn()
    medium.deliver()
    a.leave()
    a.join()
    medium.waiting.clear()  # neither the leaving nor the coming is heard
    a.send(b"unheard")
    medium.run(2.0)
    a.send(b"after")
    a.turn()
    medium.deliver()
    b.read()
    assert b.bodies[0] == b"before" and b.bodies[-1] == b"after"
    assert b.window.late == 0


def test_one_who_comes_back_gets_direct_messages_again():
    medium, a, b = pair()
    for body in (b"one", b"two"):
        a.send(body, to=b.me)
    a.turn()
    medium.deliver()
    b.read()
    b.leave()
    medium.deliver()
    b.join()
    medium.deliver()
    a.send(b"three", to=b.me)
    a.turn()
    medium.deliver()
    b.read()
    assert b.bodies == [b"one", b"two", b"three"]


def test_an_old_datagram_of_one_who_was_out_of_sight_brings_nothing_twice():
    medium, a, b = pair()
    a.send(b"once")
    a.turn()
    (old,) = [entry for entry in medium.waiting if not is_presence(a)(entry[0])]
    medium.deliver()
    medium.lose = lambda data, source, target: True
    medium.run(SILENCE_S + 3)
    assert len(b.channel.view) == 1
    medium.lose = lambda data, source, target: False
    medium.run(3.0)
    assert len(b.channel.view) == 2
    medium.waiting.append(old)
    medium.deliver()
    b.read()
    assert b.bodies == [b"once"]
    assert b.window.late == 1
    a.send(b"new")
    a.turn()
    medium.deliver()
    b.read()
    assert b.bodies == [b"once", b"new"]


def test_words_about_an_older_epoch_open_nothing():
    medium, a, b = pair()
    fill(medium, a)
    group = number_of(GROUP)
    granted = Granted(group, 0, 0, 1 << 40, a.window._outgoing[(group, 0)].epoch)
    a.leave()
    a.join()
    medium.deliver()
    fill(medium, a)
    late = Frame(sender=b.me, to=a.me, headers=[Ack([granted])])
    a.engine.receive([(b.stack.node.codec.encode(late), b.engine.address)])
    assert a.send(BODY) is None


def test_streams_end_with_the_membership():
    medium, a, b = pair()
    a.send(b"x")
    a.send(b"y", to=b.me)
    b.send(b"z")
    a.turn()
    medium.deliver()
    assert a.stats("window")["streams_out"] == 2 and a.stats("window")["streams_in"] == 1
    a.leave()
    assert a.stats("window")["streams_out"] == a.stats("window")["streams_in"] == 0
    a.stack.validate()


def test_what_was_sent_while_a_member_was_out_of_its_senders_sight_is_not_lost():
    """One side lost sight of the other: it went on alone, and what it said meanwhile was for nobody else."""
    medium, a, b = pair()
    a.send(b"before")
    a.turn()
    medium.deliver()
    medium.lose = lambda data, source, target: target == ("a", 0)
    medium.run(SILENCE_S + 3)
    assert len(a.channel.view) == 1 and len(b.channel.view) == 2
    for _ in range(5_000):
        a.send(BODY)
        a.turn()
    medium.lose = lambda data, source, target: False
    medium.run(3.0)
    assert len(a.channel.view) == 2
    a.send(b"after")
    a.turn()
    medium.deliver()
    b.read()
    assert b.bodies == [b"before", b"after"]
    assert b.window.lost == b.window.late == 0
    b.stack.validate()
