"""The simulated network: every fault strikes as often as it should, and nothing happens that no fault explains."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from pluribus.core.errors import BadInput
from pluribus.sim.machinery.disk import at_once
from pluribus.sim.machinery.kernel import Kernel
from pluribus.sim.machinery.network import LATE_S, Link, Medium, Network, faulty_link

A, B, C = ("a", 0), ("b", 0), ("c", 0)
MANY = 4_000
LINK_FAULTS = ("loss", "duplicate", "reorder", "corrupt", "late")
PERFECT = Link(latency_s=0.001, jitter_s=0.0)
BROADCAST = Medium()


class Wire:
    """Three hosts on a network; what each received, with the time."""

    def __init__(self, link: Link = PERFECT, seed: int = 1, medium: Medium = BROADCAST) -> None:
        self.kernel = Kernel()
        self.notes: list[tuple[str, str, bytes]] = []
        self.network = Network(self.kernel, Random(seed), lambda *note: self.notes.append(note), medium)
        self.network.link = link
        self.got: dict[str, list[tuple[float, bytes, str]]] = {"a": [], "b": [], "c": []}
        self.reads: list[int] = []
        """How many datagrams were handed over at a time."""
        self.engines = {}
        for address in (A, B, C):
            engine = self.engines[address[0]] = self.network.engine(address, at_once)
            engine._receive = lambda datagrams, name=address[0]: self._take(name, datagrams)
            self.network.attach(engine)

    def _take(self, name, datagrams):
        self.reads.append(len(datagrams))
        self.got[name] += [(self.kernel.now, data, source[0]) for data, source in datagrams]

    def run(self, seconds: float = 1_000.0) -> "Wire":
        self.kernel.run(self.kernel.now + seconds)
        return self

    def bodies(self, name: str) -> list[bytes]:
        return [data for _, data, _ in self.got[name]]

    def flood(self, count: int = MANY) -> "Wire":
        """One datagram a tenth of a millisecond from a to b."""
        for number in range(count):
            self.kernel.at(number * 1e-4, lambda number=number: self.engines["a"].send([b"%d" % number], B))
        return self.run()


def share(wire: Wire, fault: str) -> float:
    return wire.network.faults[fault] / MANY


def test_a_perfect_link_delivers_everything_in_order_after_its_latency():
    wire = Wire().flood()
    assert wire.got["b"] == [(pytest.approx(number * 1e-4 + 0.001), b"%d" % number, "a") for number in range(MANY)]
    assert wire.got["c"] == []
    assert wire.network.faults == Counter()
    assert [data for _, _, data in wire.notes] == wire.bodies("b")


def test_jitter_spreads_arrivals_and_keeps_the_order():
    wire = Wire(Link(latency_s=0.01, jitter_s=0.02)).flood()
    assert wire.bodies("b") == [b"%d" % number for number in range(MANY)]
    took = [at - number * 1e-4 for number, (at, _, _) in enumerate(wire.got["b"])]
    assert min(took) >= 0.01
    assert max(took) <= 0.03 + 1e-9
    assert max(took) - min(took) > 0.005


def test_bandwidth_is_the_senders_and_shared_by_its_receivers():
    wire = Wire(Link(latency_s=0.0, jitter_s=0.0, bandwidth_bytes_s=1_000))
    wire.engines["a"].send([b"x" * 500, b"x" * 500], B)
    wire.engines["a"].send([b"x" * 1_000], C)
    wire.engines["b"].send([b"y" * 100], C)
    wire.run()
    assert [at for at, _, _ in wire.got["b"]] == [0.5, 1.0]
    assert [(at, source) for at, _, source in wire.got["c"]] == [(0.1, "b"), (2.0, "a")]


@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_loss_takes_its_share(loss):
    wire = Wire(Link(loss=loss)).flood()
    assert share(wire, "loss") == pytest.approx(loss, rel=0.15)
    assert len(wire.got["b"]) == MANY - wire.network.faults["loss"]
    assert wire.bodies("b") == sorted(set(wire.bodies("b")), key=int), "what arrives, arrives once and in order"


def test_duplication_brings_its_share_twice():
    wire = Wire(Link(duplicate=0.1)).flood()
    assert share(wire, "duplicate") == pytest.approx(0.1, rel=0.15)
    counts = Counter(wire.bodies("b"))
    assert len(counts) == MANY
    assert sum(count == 2 for count in counts.values()) == wire.network.faults["duplicate"]
    assert max(counts.values()) == 2


def test_reordering_brings_its_share_late_and_loses_nothing():
    wire = Wire(Link(latency_s=0.001, jitter_s=0.001, reorder=0.1)).flood()
    assert share(wire, "reorder") == pytest.approx(0.1, rel=0.15)
    numbers = [int(body) for body in wire.bodies("b")]
    assert sorted(numbers) == list(range(MANY))
    overtaken = sum(later < earlier for earlier, later in pairwise(numbers))
    assert overtaken > MANY * 0.05


def test_a_busy_host_reads_late_and_everything_at_once():
    assert set(Wire().flood().reads) == {1}
    wire = Wire(Link(latency_s=0.001, jitter_s=0.0, late=0.05)).flood()
    assert wire.bodies("b") == [b"%d" % number for number in range(MANY)], "nothing is lost, nor overtaken"
    late = [at - number * 1e-4 - 0.001 for number, (at, _, _) in enumerate(wire.got["b"])]
    assert min(late) >= -1e-9
    assert LATE_S / 2 < max(late) <= LATE_S
    assert max(wire.reads) > 50
    assert wire.network.faults == {"together": sum(read > 1 for read in wire.reads)}


def test_what_waits_to_be_read_is_gone_with_its_host():
    wire = Wire(Link(latency_s=0.0, jitter_s=0.0, late=1.0))
    wire.engines["a"].send([b"1"], B)
    wire.kernel.run(0.0)
    assert wire.engines["b"].stats.datagrams_in == 1
    wire.engines["b"].cut()
    assert wire.run().got["b"] == []


def test_damage_is_loss_where_the_host_has_a_checksum():
    wire = Wire(Link(corrupt=0.2)).flood()
    assert share(wire, "corrupt") == pytest.approx(0.2, rel=0.15)
    assert len(wire.got["b"]) == MANY - wire.network.faults["corrupt"]
    assert {int(body) for body in wire.bodies("b")} <= set(range(MANY))


def test_damage_is_one_flipped_bit_where_it_has_none():
    wire = Wire(Link(latency_s=0.001, jitter_s=0.0, corrupt=0.2, unchecked=True)).flood()
    damaged = 0
    for number, body in enumerate(wire.bodies("b")):
        sent = b"%d" % number
        flipped = int.from_bytes(sent, "big") ^ int.from_bytes(body, "big")
        assert len(body) == len(sent) and flipped.bit_count() <= 1
        damaged += flipped.bit_count()
    assert damaged == wire.network.faults["corrupt"] > 0


def test_a_link_of_its_own_holds_for_one_direction_of_one_pair():
    wire = Wire()
    wire.network.set_link(A, B, Link(loss=1.0))
    wire.engines["a"].send_all([b"1"])
    wire.engines["b"].send_all([b"2"])
    wire.run()
    assert wire.got == {
        "a": [(0.001, b"2", "b")],
        "b": [],
        "c": [(0.001, b"1", "a"), (0.001, b"2", "b")],
    }
    wire.network.clear_links()
    wire.engines["a"].send([b"3"], B)
    assert wire.run().bodies("b") == [b"3"]


def test_a_partition_cuts_between_its_sides_until_it_heals():
    wire = Wire()
    wire.network.partition([[A, B]])  # c is on no side, and alone
    assert wire.network.partitioned
    for engine in wire.engines.values():
        engine.send_all([b"1"])
    wire.run()
    assert {name: [source for _, _, source in got] for name, got in wire.got.items()} == {
        "a": ["b"],
        "b": ["a"],
        "c": [],
    }
    assert wire.network.faults == {"partition": 1, "cut": 4}
    wire.network.heal()
    wire.network.heal()
    assert wire.network.faults["heal"] == 1, "healing what is whole is nothing"
    wire.engines["c"].send_all([b"2"])
    wire.run()
    assert wire.bodies("a")[-1] == wire.bodies("b")[-1] == b"2"


def test_what_is_under_way_when_a_host_is_cut_off_is_gone():
    wire = Wire()
    wire.engines["a"].send([b"1"], B)
    wire.engines["b"].cut()
    assert wire.run().got["b"] == []
    assert wire.network.others(A) == [C]


def test_statistics_count_what_was_sent_and_what_arrived():
    wire = Wire()
    wire.engines["a"].send([b"12", b"345"], B)
    wire.run()
    out, back = wire.engines["a"].stats, wire.engines["b"].stats
    assert (out.datagrams_out, out.bytes_out, out.calls_out) == (2, 5, 1)
    assert (back.datagrams_in, back.bytes_in) == (2, 5)


@pytest.mark.parametrize(
    "wrong",
    [
        *({name: value} for name in LINK_FAULTS for value in (-0.1, 1.1, float("nan"))),
        *({name: value} for name in ("latency_s", "jitter_s", "bandwidth_bytes_s") for value in (-1, float("inf"))),
    ],
    ids=str,
)
def test_a_link_that_cannot_be_is_refused(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Link(**wrong)


def test_chance_makes_links_within_the_severity():
    random = Random(5)
    links = [faulty_link(random, 0.5) for _ in range(200)]
    assert max(link.loss for link in links) <= 0.1
    assert max(link.loss for link in links) > 0.08
    assert len({link.bandwidth_bytes_s for link in links}) == 3


def test_without_broadcast_only_known_places_and_peers_are_reached():
    wire = Wire(medium=Medium(broadcasts=False, path_bytes=620))
    wire.network.places = (A, B)
    engine = wire.engines["a"]
    assert (engine.broadcasts, engine.path_bytes) == (False, 620)
    engine.send_all([b"to the places"])
    wire.run()
    assert (wire.bodies("a"), wire.bodies("b"), wire.bodies("c")) == ([], [b"to the places"], [])
    engine.set_peers([B, C])
    engine.send_all([b"to all that are known"])
    wire.run()
    assert wire.bodies("b")[1:] == wire.bodies("c") == [b"to all that are known"], "each once"
