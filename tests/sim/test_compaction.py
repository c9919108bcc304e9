"""Compaction in the simulator: a sample of the campaign, its mutants, and its checkers on broken histories."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import compaction
from pluribus.sim.checkers.durable_topics import Finals, encode
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import compaction as mutants
from tests.mutants.hunt import assert_found, sample


def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("compaction", mutants.FOUND, 100, 101)
    assert all(count > 5 for count in found["checkers"].values())


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "compaction")


def history(*happenings):
    made = History()
    for at, (what, number, body) in enumerate(happenings):
        made.add(Happening(float(at), at, what, "table", number, body))
    return made


def final(*bodies):
    return ("final", (0, 0), encode(Finals({"table": (0, [(at, 1, at + 1, body) for at, body in enumerate(bodies)])})))


def sent(*bodies):
    return [(what, (1, at + 1), body) for at, body in enumerate(bodies) for what in ("sent", "acked")]


def test_checkers_find_what_is_wrong():
    last, other, onward = compaction.last_of_each_key, compaction.nothing_else_went, compaction.read_onward
    with pytest.raises(Violation, match="end with different topics"):
        last(history(final(b"a 1"), final(b"a 2")))
    with pytest.raises(Violation, match="one was to stay"):
        last(history(*sent(b"a 1"), final()))
    with pytest.raises(Violation, match="one was to stay"):
        last(history(*sent(b"a 1", b"a 2"), final(b"a 1", b"a 2")))
    with pytest.raises(Violation, match="b'a 1' stayed, and b'a 2' was sent"):
        last(history(*sent(b"a 1", b"a 2"), final(b"a 1")))
    assert last(history(*sent(b"a 1", b"a 2", b"- 3"), final(b"a 2", b"- 3"))) == 3
    with pytest.raises(Violation, match="has no key"):
        other(history(*sent(b"- 1"), final()))
    with pytest.raises(Violation, match="nobody sent it"):
        other(history(final(b"a 9")))
    with pytest.raises(Violation, match="from offset 3 to 2"):
        onward(history(("read", (3, 7), b"x"), ("read", (2, 7), b"y")))
    with pytest.raises(Violation, match="to a reader"):
        onward(history(("read", (3, 7), b"x"), ("read", (3, 8), b"y")))
