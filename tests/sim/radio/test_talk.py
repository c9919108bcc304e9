"""Conversations on the air: whatever carries them, every member shows the same tree in the end."""

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.sim.radio import PROTOCOLS, Setting, talk
from pluribus.sim.radio.node import Data
from pluribus.sim.radio.talk import Hall, Talker

TALK = Setting(seconds=45.0, rate=1.0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_repair_brings_every_member_to_the_same_tree(protocol: str):
    """On the usual network, and on one so thin that it parts: the multicast alone brings a part."""
    found = talk(protocol, TALK)
    assert found.same and found.said >= 20 and found.checks > 500
    sparse = talk(protocol, msgspec.structs.replace(TALK, nodes=20, seed=1))
    assert sparse.same
    if protocol != "gossip":  # which repairs by itself
        assert sparse.ratio < 0.95 and sparse.answered > 0


def test_without_repair_members_differ():
    """What the surveyed protocols leave: the same run with nobody to ask or answer."""
    hall = Hall("AMRIS", TALK)
    for talker in hall.talkers.values():
        talker.sync.begin = talker.sync.newcomer = talker.sync.tick = lambda now: None
        talker.sync._summary_at = float("inf")
        talker.sync._ask_by = talker.sync._requested = lambda *arguments, **more: None
    hall.converse()
    hall.world.air.run(TALK.seconds)
    trees = {tuple(talker.shown()) for talker in hall.talkers.values()}
    assert len(trees) > 1 and not hall.same
    with pytest.raises(Violation):
        hall.check()


def test_the_same_seed_gives_the_same_talk():
    assert talk("ODMRP", TALK) == talk("ODMRP", TALK)
    assert talk("ODMRP", TALK).digest != talk("ODMRP", msgspec.structs.replace(TALK, seed=5)).digest


def test_all_are_invited_and_join():
    hall = Hall("flooding", TALK)
    hall.world.air.run(20.0)
    assert all(talker.joined for talker in hall.talkers.values())
    tables = {
        tuple((row.person, row.here) for row in talker.joining.groups["delhi"].info().rows)
        for talker in hall.talkers.values()
    }
    assert len(tables) == 1 and len(next(iter(tables))) == TALK.members


def test_what_cannot_be_read_is_counted_and_hurts_nobody():
    hall = Hall("flooding", TALK)
    hall.world.air.run(10.0)
    talker: Talker = next(iter(hall.talkers.values()))
    for body in (b"", b"R\xff", b"L\x93\x01", b"R" + b"\xc1" * 40):
        talker.heard(Data(99, 0, len(body), body))
    assert talker.malformed == 4
    hall.converse()
    hall.world.air.run(45.0)
    hall.until_same()
    assert hall.same and hall.check() > 0
