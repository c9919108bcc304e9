"""Real processes, real sockets, real faults. The histories are checked as those of the simulator are."""

import os
import signal
import sys
from pathlib import Path

import pytest

from pluribus.sim.checkers.totals import as_those_who_went_on
from tests.real.cluster import Sites, cluster, eventually, sites

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]


def test_survivors_of_a_kill_agree_on_the_view_and_on_what_was_delivered(tmp_path: Path):
    """First any member, then the coordinator, while all send."""
    with cluster(f"kill-{os.getpid()}", tmp_path) as found:
        found.start("a b c d e")
        people = found.processes
        eventually(lambda: found.together(people), "five members form one view")
        eventually(lambda: all(p.count("deliver") > 400 for p in people), "all send, and all deliver")
        eldest_first = sorted(people, key=lambda p: people[0].view.index(p.me))
        for victim in (eldest_first[2], eldest_first[0]):
            survivors = [p for p in eldest_first if p.process.poll() is None and p is not victim]
            victim.kill()
            eventually(lambda: found.together(survivors), f"{len(survivors)} survivors agree on a view")  # noqa: B023
            assert all(p.primary for p in survivors)
            counts = [p.count("deliver") for p in survivors]
            eventually(
                lambda: all(p.count("deliver") > n + 200 for p, n in zip(survivors, counts, strict=True)),  # noqa: B023
                "messages go on",
            )
        checks = found.settle(survivors)
        assert checks["view_synchrony"] >= 2 * len(survivors)
        assert not any(p.count("excluded") for p in survivors)


def test_a_member_that_stood_still_comes_back_and_nobody_else_is_disturbed(tmp_path: Path):
    with cluster(f"pause-{os.getpid()}", tmp_path) as found:
        found.start("a b c d")
        people = found.processes
        eventually(lambda: found.together(people), "four members form one view")
        eventually(lambda: all(p.count("deliver") > 400 for p in people), "all send, and all deliver")
        paused, others = people[1], [people[0], *people[2:]]
        suspicions = [p.count("suspected") for p in people]
        views = [len(p.views()) for p in others]
        paused.signal(signal.SIGSTOP)
        eventually(lambda: found.together(others), "the others go on without it")
        paused.signal(signal.SIGCONT)
        eventually(lambda: found.together(people), "all four are together again")
        assert paused.count("excluded") == 1, "it is told that it has missed something"
        assert paused.count("suspected") == suspicions[1], "a paused observer suspects nobody"
        for process, before in zip(others, (suspicions[0], *suspicions[2:]), strict=True):
            suspected = [h.members for h in process.look() if h.what == "suspected"][before:]
            assert set(suspected) <= {(paused.me,)}, "nobody suspects anybody else"
        assert [len(p.views()) - n for p, n in zip(others, views, strict=True)] == [2, 2, 2], "without it, and with it"
        found.settle(people)


def test_a_sequencer_that_stood_still_delivers_no_order_of_its_own(tmp_path: Path):
    """It wakes with what the others sent meanwhile in its buffers. They have ordered it long ago."""
    with cluster(f"woken-{os.getpid()}", tmp_path) as found:
        found.start("a b c")
        people = found.processes
        eventually(lambda: found.together(people), "three members form one view")
        for _ in range(2):
            eventually(lambda: all(p.count("deliver") > 400 for p in people), "all send, and all deliver")
            eldest = next(p for p in people if p.me == people[0].view[0])
            others = [p for p in people if p is not eldest]
            told = eldest.count("excluded")
            eldest.signal(signal.SIGSTOP)
            eventually(lambda: found.together(others), "the others go on without it")  # noqa: B023
            ordered = [len(p.delivered("votes")) for p in others]
            eventually(
                lambda: all(len(p.delivered("votes")) > n + 50 for p, n in zip(others, ordered, strict=True)),  # noqa: B023
                "they go on in total order",
            )
            eldest.signal(signal.SIGCONT)
            eventually(lambda: found.together(people), "all three are together again")
            assert eldest.count("excluded") == told + 1
        checks = found.settle(people, {"as_those_who_went_on": as_those_who_went_on})
        assert checks["as_those_who_went_on"] > 100


@pytest.fixture
def parted():
    with sites() as made:
        yield made


def test_two_sites_part_and_merge_and_only_the_majority_stays_primary(parted: Sites, tmp_path: Path):
    with cluster(f"sites-{os.getpid()}", tmp_path) as found:
        urls = [f"{found.url}?interface={address}" for address in parted.ADDRESSES]
        few = found.start("a b", parted.before(0), urls[0])
        many = found.start("c d e", parted.before(1), urls[1])
        people = found.processes
        eventually(lambda: found.together(people), "five members at two sites form one view")
        eventually(lambda: all(p.primary for p in people), "and found a primary, when they have listened long enough")
        eventually(lambda: all(p.count("deliver") > 400 for p in people), "all send, and all deliver")
        parted.cut()
        eventually(lambda: found.together(few) and found.together(many), "each site has a view of its own")
        assert [p.primary for p in people] == [False, False, True, True, True]
        ordered = [len(p.delivered("votes")) for p in people]
        talked = [len(p.delivered("talk")) for p in people]
        eventually(lambda: all(len(p.delivered("talk")) > n + 50 for p, n in zip(people, talked, strict=True)), "talk")
        eventually(lambda: all(len(p.delivered("votes")) > n + 50 for p, n in zip(many, ordered[2:], strict=True)), "")
        assert [len(p.delivered("votes")) for p in few] == ordered[:2], "the minority orders nothing"
        parted.join()
        eventually(lambda: found.together(people), "the sites merge")
        eventually(lambda: all(len(p.delivered("votes")) > n + 50 for p, n in zip(few, ordered[:2], strict=True)), "")
        assert [p.count("excluded") for p in people] == [1, 1, 0, 0, 0]
        checks = found.settle(people)
        assert checks["excluded"] > 0 and checks["reported"] > 0
