"""The bench of groups measures what it says, on real processes; never how fast it is."""

import msgspec
import pytest

from pluribus.bench import namespaces
from pluribus.bench.exchange import ALL, Case, Measured, Tick, body_of, exchange
from pluribus.bench.group import SHARES, run
from pluribus.cli import programs
from pluribus.core.errors import BadInput, Unavailable


def test_one_case_stands_beside_the_limit():
    found = run(quick=True, order="safe", size=1_000, members=3)
    assert [row["case"] for row in found["results"]] == [
        "safe, 1000 B, 3 members, one sends",
        "safe, 1000 B, 3 members, one sends: sender",
        "safe, 1000 B, 3 members, one sends: receiver",
        "batched limit, 1000 B",
    ]
    assert all(row["value"] > 0 and row["runs"] == 1 for row in found["results"])
    assert found["goals"] == []


def test_the_first_case_has_a_goal():
    (goal,) = run(quick=True)["goals"]
    assert goal["goal"] == "fifo, 100 B, two processes: share of the batched limit"
    assert goal["measured"] > 0 and goal["wanted"] == 0.5


@pytest.mark.parametrize("case", [Case(senders=ALL, members=3), Case(typed=True, sealed=True)], ids=str)
def test_every_receiver_has_everything(case: Case):
    measured = exchange(msgspec.structs.replace(case, seconds=0.1))
    assert measured.rate > 0 and measured.sender_us > 0 and measured.receiver_us > 0


def test_orders_are_compared_with_the_fifo_run_before(monkeypatch: pytest.MonkeyPatch):
    ran: list[Case] = []

    def pretend(case: Case) -> Measured:
        ran.append(case)
        return Measured(100.0 if case.order == "fifo" and not case.sealed else 60.0, 1.0, 1.0)

    monkeypatch.setattr("pluribus.bench.group.exchange", pretend)
    found = run(quick=True, order="all")
    assert [case.order for case in ran[:8]] == ["fifo", "causal", "fifo", "total", "fifo", "safe", "fifo", "semantic"]
    assert {case.members for case in ran} == {4} and {case.senders for case in ran} == {"one", "all"}
    assert sum(case.sealed for case in ran) == 2
    goals = {goal["goal"].partition(",")[0]: goal for goal in found["goals"]}
    assert goals.keys() == SHARES.keys() and len(found["goals"]) == 8
    assert {name: goal["met"] for name, goal in goals.items()} == {
        "causal": False,
        "total": True,
        "safe": True,
        "encrypted": False,
    }


def test_a_typed_body_has_the_size_that_was_asked_for():
    body = body_of(Case(typed=True, size=500))
    assert type(body) is Tick
    assert abs(len(msgspec.msgpack.encode(body)) - 500) <= 2
    assert body_of(Case(size=7)) == b"xxxxxxx"


def test_members_in_two_namespaces_talk():
    if not programs.can_make_namespaces():
        pytest.skip(programs.REMEDIES["namespaces"])
    found = run(quick=True, members=2, size=1_000, network="namespaces")
    cases = [row["case"] for row in found["results"] if row["unit"] == "messages/s"]
    assert [case.split(", ", 4)[4] for case in cases] == [
        "loopback",
        "1,500-byte packets",
        "1,500-byte packets, one a datagram",
    ]
    assert all(row["value"] > 0 for row in found["results"])
    assert len([row for row in found["results"] if row["case"].endswith("share of loopback")]) == 2
    assert found["goals"] == []


def test_without_the_right_to_make_namespaces_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match="install iproute2"), namespaces.pair():
        pass


def test_a_sweep_is_a_curve(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pluribus.bench.group.exchange", lambda case: Measured(1_000.0 / case.members, 1.0, 2.0))
    found = run(quick=True, sweep="members", senders="all")
    (curve,) = found["curves"]
    assert (curve["curve"], curve["x"], curve["unit"]) == ("fifo, all send", "members", "messages/s")
    assert curve["points"][:3] == [[2.0, 500.0], [3.0, 333.333], [4.0, 250.0]]
    assert len(found["results"]) == 3 * len(curve["points"])
    with pytest.raises(BadInput, match="use members or size"):
        run(quick=True, sweep="colour")
