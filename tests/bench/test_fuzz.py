"""A bounded sample of what ``pluribus bench fuzz --frames 10000000`` does, and proof that it would notice."""

import asyncio
from random import Random
from typing import Any

import pytest

from pluribus.bench import fuzz as fuzz_module
from pluribus.bench.fuzz import RSS_GROWTH_BYTES_MAX, fuzz, run
from pluribus.bench.mutants import SENDER, Mutants
from pluribus.bench.wire import recorded
from pluribus.core.errors import MalformedFrame
from pluribus.core.frame import Frame
from pluribus.group.dispatch import Dispatch
from pluribus.layers.presence import Presence
from pluribus.layers.window import Probe, Window
from pluribus.runtime.bus import BEST_EFFORT
from pluribus.runtime.group.calls import GroupCalls
from pluribus.wire.codec import Codec
from pluribus.wire.questions import MARKED

CODEC = Codec("fuzz", (*Presence.headers, *Window.headers, *Dispatch.headers))


@pytest.fixture(scope="module")
def samples() -> list[Frame]:
    return asyncio.run(recorded(BEST_EFFORT, 1))


def test_a_hundred_thousand_mutants_leave_the_node_alive_and_its_memory_flat():
    heard: list[int] = []
    found = fuzz(100_000, seed=1, progress=heard.append)
    assert found["first_escaped"] == ""
    assert (found["frames"], found["faulty"], found["escaped"], found["alive"]) == (100_000, 0, 0, True)
    assert found["passed_codec"] + found["malformed"] == 100_000
    assert 0.4 < found["share_passed"] < 0.65
    assert found["rss_growth_bytes"] < RSS_GROWTH_BYTES_MAX
    assert heard == sorted(heard) and len(heard) > 50
    layers = found["layers"]
    assert layers["window"]["late"] and layers["window"]["stalls"] and layers["groups"]["malformed"]
    assert layers["presence"]["refusals"] and layers["presence"]["strangers"]


def test_frames_of_every_sort_are_recorded(samples: list[Frame]):
    headers = {type(header) for frame in samples for header in frame.headers}
    assert headers >= {*Presence.headers, *Window.headers, *Dispatch.headers}
    assert {frame.kind for frame in samples} == {0, 1, 2, *MARKED, "FuzzTick"}
    assert {frame.to == 0 for frame in samples if frame.count} == {True, False}


def test_the_same_seed_feeds_the_same_frames():
    def told(found: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in found.items() if key in ("malformed", "passed_codec", "layers")}

    assert told(fuzz(5_000, seed=7)) == told(fuzz(5_000, seed=7))
    assert told(fuzz(5_000, seed=7)) != told(fuzz(5_000, seed=8))


def test_structured_mutants_mostly_decode_and_raw_ones_mostly_do_not(samples: list[Frame]):
    mutants = Mutants(samples, 12345, Random(1))

    def decodes(data: bytes) -> bool:
        try:
            CODEC.decode(data)
        except MalformedFrame:
            return False
        return True

    structured = sum(decodes(mutants.structured()) for _ in range(2_000))
    raw = sum(decodes(mutants.raw()) for _ in range(2_000))
    assert structured > 1_300
    assert 100 < raw < 1_000


def test_senders_change_and_greet_first(samples: list[Frame]):
    mutants = Mutants(samples, 12345, Random(1))
    before = {CODEC.decode(data).sender for data in mutants.greetings()}
    mutants.identify()
    after = {CODEC.decode(data).sender for data in mutants.greetings()}
    assert len(before) == len(after) == 6 and not before & after
    assert all(base[SENDER] for base in mutants._bases)


def test_a_layer_that_fails_on_a_lie_is_noticed(monkeypatch: pytest.MonkeyPatch):
    plain = Window._probed

    def naive(self: Window, sender: int, probe: Probe) -> None:
        assert probe.epoch < 1 << 16, "nobody would send that"
        plain(self, sender, probe)

    monkeypatch.setattr(Window, "_probed", naive)
    found = fuzz(40_000, seed=2)
    assert found["faulty"] > 0
    assert found["alive"], "the node goes on all the same"


def test_an_exception_that_leaves_the_node_is_noticed(monkeypatch: pytest.MonkeyPatch):
    plain = Window._acknowledge

    def naive(self: Window) -> None:
        assert all(stream.epoch < 1 << 40 for stream in self._moved.values()), "nobody would send that"
        plain(self)

    monkeypatch.setattr(Window, "_acknowledge", naive)
    found = fuzz(20_000, seed=1)
    assert found["escaped"] > 0
    assert "nobody would send that" in found["first_escaped"]


def test_calls_are_looked_at_and_what_fails_in_the_loop_is_noticed(monkeypatch: pytest.MonkeyPatch):
    plain = GroupCalls._work
    looked_at: list[GroupCalls] = []

    def naive(self: GroupCalls) -> None:
        plain(self)
        looked_at.append(self)
        if len(looked_at) == 1:
            raise AssertionError("nobody would call that")

    monkeypatch.setattr(GroupCalls, "_work", naive)
    found = fuzz(20_000, seed=1)
    assert len(looked_at) > 10
    assert not any(service._frames for service in looked_at), "calls wait for a turn of the loop and for ever"
    assert found["escaped"] == 1 and "nobody would call that" in found["first_escaped"]


def test_a_deaf_node_is_noticed(samples: list[Frame], monkeypatch: pytest.MonkeyPatch):
    async def as_before(stack: str, seed: int) -> list[Frame]:
        return samples

    monkeypatch.setattr(fuzz_module, "recorded", as_before)
    monkeypatch.setattr(Presence, "_hear", lambda self, member, hello: None)
    monkeypatch.setattr(Presence, "_forget", lambda self, member, reason: None)
    assert fuzz(1_000, seed=1)["alive"] is False


def test_the_bench_has_its_goals():
    found = run(quick=True, frames=3_000, seed=1, progress=lambda text: None)
    assert found["bench"] == "fuzz" and found["frames"] == 3_000
    assert all(goal["met"] for goal in found["goals"]), found["goals"]
