"""Consumer groups in the simulator: a sample of the campaign, its mutants, and its checkers on broken histories."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import consumer_groups as groups
from pluribus.sim.checkers.durable_topics import Finals, encode
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import consumer_groups as mutants
from tests.mutants.hunt import assert_found, sample


def test_a_sample_of_the_campaign_breaks_no_promise():
    found = sample("consumer-groups", mutants.FOUND, 100, 101, 102, 103)
    assert all(count > 50 for count in found["checkers"].values())


@pytest.mark.parametrize("mutant", mutants.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = mutants.FOUND[mutant]
    assert_found(mutant, seed, sentence, "consumer-groups")


def history(*happenings):
    made = History()
    for at, (what, number, body) in enumerate(happenings):
        made.add(Happening(float(at), 1, what, "work", number, body))
    return made


def test_checkers_find_what_is_wrong():
    with pytest.raises(Violation, match="no member of the group got it"):
        groups.all_handled(history(("sent", (0, 0), b"- 1"), ("acked", (7, 1), b"- 1")))
    with pytest.raises(Violation, match="which nobody published"):
        groups.all_handled(history(("handled", (0, 0), b"- 1")))
    with pytest.raises(Violation, match=r"was settled at 1\.000000 and came again at 2"):
        groups.settled_once(history(("handled", (0, 0), b""), ("settled_one", (0, 0), b""), ("handled", (0, 1), b"")))
    with pytest.raises(Violation, match="while b'1' held it"):
        groups.one_holder(history(("given", (0, 0), b"1"), ("given", (0, 0), b"2")))
    assert groups.one_holder(history(("given", (0, 0), b"1"), ("back", (0, 0), b""), ("given", (0, 0), b"2"))) == 3
    final = encode(Finals({"work": (0, [(0, 1, 1, b"a 1"), (1, 1, 2, b"- 2"), (2, 1, 3, b"a 3")])}))
    with pytest.raises(Violation, match="offset 2 was handled before 0, which has the same key"):
        groups.keys_in_order(history(("handled", (1, 0), b""), ("handled", (2, 0), b""), ("final", (0, 0), final)))
