"""Topics in the simulator: a sample of seeds keeps every promise, and mutants are found."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers import topics as checkers
from pluribus.sim.machinery.campaign import campaign
from pluribus.sim.machinery.history import Happening, History
from tests.mutants import topics
from tests.mutants.hunt import assert_found


@pytest.mark.slow
def test_a_sample_breaks_no_promise():
    """Others, which once failed, are in ``test_seeds_that_failed.py``; that a seed is the same twice is shown in
    ``tests/_speed/test_straight.py``."""
    found = campaign("topics", [1, 2, 3, 12_000_813])  # in half of all worlds nobody shares
    assert (found["failures"], found["reasons"]) == ([], {})
    assert all(count > 0 for count in found["checkers"].values()), found["checkers"]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", topics.FOUND, ids=lambda mutant: mutant.__name__)
def test_the_mutant_is_found_by_its_seed(mutant):
    seed, sentence = topics.FOUND[mutant]
    assert_found(mutant, seed, sentence, "topics")


def history(*happenings):
    """Members 1 and 2 share ``a``; each happening takes a second, and the end comes a minute later."""
    made = History()
    for at, (what, member, number, options) in enumerate(happenings):
        label = "" if what in ("publish", "came", "primary", "cut") else f"shared a {member}"
        made.add(Happening(float(at), member, what, label, (9, number), b"a", **options))
    made.add(Happening(60.0, 0, "settled", members=(1, 2)))
    return made


def happened(what, member, number=0, **options):
    return (what, member, number, options)


BEGUN = (happened("begun", 1), happened("begun", 2), happened("asks", 1), happened("asks", 2))
LATER = [happened("gap", 7)] * 10
"""So much later that its member is in its sets."""
CAME = (*BEGUN, *LATER, happened("came", 2, 1), happened("deliver", 1, 1))
AWAY = (happened("primary", 2, members=(1, 2)), happened("primary", 2, members=(2,)))


@pytest.mark.parametrize(
    ("checker", "happenings", "sentence"),
    [
        (checkers.shared_once, [*CAME, happened("deliver", 2, 1)], "and to"),
        (checkers.begun_once, [*CAME, happened("deliver", 2, 1, orphan=True)], "had begun and is there"),
        (
            checkers.finished_once,
            [*CAME, happened("deliver", 1, 2), happened("deliver", 2, 1, orphan=True)],
            "had finished it",
        ),
        (checkers.none_forgotten, [*BEGUN, *LATER, happened("came", 2, 1)], "it was forgotten"),
        (checkers.none_abandoned, [*CAME, happened("ended", 1)], "nobody began it again"),
        (checkers.none_abandoned, [*CAME, *AWAY], "nobody began it again"),
        (checkers.none_abandoned, [*CAME, happened("cut", 1)], "nobody began it again"),
    ],
)
def test_a_broken_history_is_found(checker, happenings, sentence):
    with pytest.raises(Violation, match=sentence):
        checker(history(*happenings))


@pytest.mark.parametrize(
    "happenings",
    [
        [*CAME],
        [*CAME, happened("asks", 1), happened("ended", 1)],
        [*CAME, *AWAY, happened("deliver", 2, 1, orphan=True)],
        [*CAME, happened("cut", 1), happened("deliver", 1, 1, orphan=True)],
    ],
)
def test_a_good_history_is_counted(happenings):
    for checker in (checkers.shared_once, checkers.begun_once, checkers.none_forgotten, checkers.none_abandoned):
        assert checker(history(*happenings)) > 0
