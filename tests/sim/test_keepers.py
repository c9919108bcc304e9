"""The keepers' log in the simulator: a sample of its campaign, its mutants, and its checkers on broken histories."""

from types import SimpleNamespace

import msgspec
import pytest

from pluribus.core.errors import Violation
from pluribus.core.ports import Append, Put, Repair
from pluribus.group.keepers.words import DAMAGED, Meta, stored
from pluribus.sim.checkers import logs
from pluribus.sim.checkers.logs import Final, Ok
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.scenarios.keepers import NAME, Play
from tests.mutants import keepers as mutants
from tests.mutants.hunt import assert_found, sample

from .test_disk import disk

encode = msgspec.msgpack.encode


def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("keepers", mutants.FOUND)
    assert all(count > 100 for count in found["checkers"].values())


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "keepers")


def test_a_disk_that_was_put_right_counts_as_right_when_that_is_synced():
    kernel, store, _ = disk()
    world = SimpleNamespace(hosts=[SimpleNamespace(disk=store, incarnations=1)], now=0.0)
    playing = object.__new__(Play)
    playing.world, playing._struck = world, {}

    def sound(after_s: float) -> bool:
        kernel.run(kernel.now + after_s)
        world.now = kernel.now
        return playing._sound(0)

    whole = Put(f"{NAME}/meta/a", stored(Meta(1)))
    store.write([whole, Append("log", [b"row"])], lambda error: None)
    assert sound(1.0), "it never was bad"
    playing._struck[0] = None
    assert store.lose_tail()
    assert not sound(1.0)
    store.write([Repair("log", 0, b"row")], lambda error: None)
    assert store.damage() == 0 and not sound(0.0), "a crash would take the row back"
    assert sound(1.0)
    store.write([Put(f"{NAME}/meta/a", stored(Meta(1, health=DAMAGED)))], lambda error: None)
    assert not sound(1.0)
    store.write([whole], lambda error: None)
    assert not sound(0.0)
    world.hosts[0].incarnations += 1
    kernel.run(kernel.now + 1.0)
    store.write([whole], lambda error: None)
    assert not sound(0.0), "what was under way in another life of the machine may be gone"
    assert sound(1.0)


# --- checkers ---------------------------------------------------------------------------------------------------------


def history(*happenings) -> History:
    made = History()
    for at, (member, what, number, body) in enumerate(happenings):
        made.add(Happening(float(at), member, what, "log", number, body))
    return made


def final(*effects) -> tuple:
    return (0, "final", (9, 1), encode(Final(list(effects))))


def ok(client, sequence, *result) -> tuple:
    return (client, "ok", (client, sequence), encode(Ok(*result)))


def call(client, sequence) -> tuple:
    return (client, "invoke", (client, sequence), b"")


def broken(checker, *happenings) -> str:
    with pytest.raises(Violation) as caught:
        checker(history(*happenings))
    return str(caught.value)


def test_agreement_sees_another_command_a_gap_and_a_step_back():
    one, two = (0, "apply", (0, 1), b"a"), (1, "apply", (0, 1), b"a")
    assert logs.agreement(history(one, two, (0, "restore", (5, 1), b""), (0, "apply", (5, 1), b"x"))) == 3
    assert "another command 0" in broken(logs.agreement, one, (1, "apply", (0, 1), b"b"))
    assert "0 was next" in broken(logs.agreement, (0, "apply", (1, 1), b"b"))
    assert "set back from 1 to 0" in broken(logs.agreement, one, (0, "restore", (0, 1), b""))


def test_one_leader_sees_two():
    assert logs.one_leader(history((0, "led", (1, 5), b""), (0, "led", (1, 5), b""), (1, "led", (2, 6), b""))) == 3
    assert "both led epoch 1" in broken(logs.one_leader, (0, "led", (1, 5), b""), (1, "led", (1, 6), b""))


def test_kept_sees_what_was_lost_or_moved_and_states_that_differ():
    effect = (1, 1, 0, "x", b"v")
    assert logs.kept(history(ok(1, 1, 0), final(effect))) == 2
    assert "acknowledged at index 0 and ended at None" in broken(logs.kept, ok(1, 1, 0), final())
    assert "ended at 3" in broken(logs.kept, ok(1, 1, 0), final((1, 1, 3, "x", b"v")))
    assert "different states" in broken(logs.kept, final(effect), final())


def test_once_sees_what_was_done_twice_or_out_of_order():
    assert logs.once(history(final((1, 1, 0, "x", b"v"), (2, 1, 1, "x", b"v"), (1, 2, 2, "x", b"w")))) == 3
    assert "after 1" in broken(logs.once, final((1, 1, 0, "x", b"v"), (1, 1, 1, "x", b"v")))
    assert "after 0" in broken(logs.once, final((1, 2, 0, "x", b"v")))


def test_linearizable_sees_stale_reads_and_effects_that_come_too_late():
    write = (1, 1, 0, "x", b"v")
    assert logs.linearizable(history(call(1, 1), ok(1, 1, 0), call(2, -1), ok(2, -1, 1, "x", b"v"), final(write))) == 2
    stale = (call(1, 1), ok(1, 1, 0), call(2, -1), ok(2, -1, 0, "x", b""), final(write))
    assert "answered before it was called" in broken(logs.linearizable, *stale)
    wrong = (call(2, -1), ok(2, -1, 1, "x", b"w"), final(write))
    assert "written was b'v'" in broken(logs.linearizable, *wrong)
    early = (call(1, 1), ok(1, 1, 5), call(2, 1), ok(2, 1, 3), final())
    assert "took effect at 3" in broken(logs.linearizable, *early)


def test_finished_sees_who_still_waits():
    settled = (0, "settled", (0, 0), b"")
    assert logs.finished(history(call(1, 1), ok(1, 1, 0), settled)) == 1
    assert "never answered" in broken(logs.finished, call(1, 1), settled)
    assert "did not settle" in broken(logs.finished, call(1, 1), ok(1, 1, 0))
