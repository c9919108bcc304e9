"""The bench of views: real processes join, leave and die, and what is told of it is what happened."""

from time import monotonic

import pytest

from pluribus.bench import views
from pluribus.bench.crew import Seen, crew
from pluribus.bench.report import result
from pluribus.bench.views import changes, rest, run, start
from pluribus.core.errors import BadInput, PluribusError


def quiet(text: str) -> None: ...


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(views, "SETTLE_S", 0.2)


def test_a_crew_changes_and_tells_what_it_saw():
    with crew(views._url(), 100) as team:
        for _ in range(2):
            team.add()
        team.all_see(2, 0.0)
        late = team.add(wait=True)
        team.until(lambda: late.imported_at > 0, "third")
        assert late.saw(3, 0.0) is None
        began = monotonic()
        late.say("connect")
        assert team.all_see(3, began) > began
        told = team.ask()
        assert sum(one.eldest for one in told) == 1
        assert all(one.cpu_s > 0 for one in told)
        team.dismiss(late)
        killed = late.kill()
        assert team.all_see(2, killed) > killed
        team.until(lambda: all(member.blocked_s for member in team.members), "view changes")
        everybody = [*team.members, late]
    assert not any(member.process.is_alive() for member in everybody)


def test_a_member_that_fails_ends_the_wait():
    with crew("nonsense://", 0) as team:
        team.add()
        with pytest.raises(PluribusError, match="member-1 failed"):
            team.all_see(2, 0.0)


def test_what_was_seen_before_does_not_count():
    with crew("inproc://unused", 0) as team:
        member = team.add(wait=True)
        member.seen = [Seen(1.0, 3), Seen(2.0, 2), Seen(4.0, 3), Seen(5.0, 3)]
        assert member.saw(3, 0.0) == 1.0
        assert member.saw(3, 3.0) == 4.0
        assert member.saw(4, 0.0) is None


def test_changes_are_told_by_kind():
    rows, goals = changes(3, 1, quiet)
    cases = [row.case for row in rows]
    for kind in ("join", "leave", "crash"):
        assert f"{kind}: senders blocked, p95" in cases
        assert f"{kind}: until all have the view" in cases
    assert all(row.value >= 0 for row in rows)
    assert [goal.wanted for goal in goals] == [50.0, 2.0]


def test_start_and_rest():
    (started,), (goal,) = start(3, 1, quiet)
    assert started.case == "3 processes form one view after the last import"
    assert goal.wanted == 5.0
    (rested,), (goal,) = rest(2, 0.2, quiet)
    assert rested.runs == 2 and rested.value > 0
    assert goal.wanted == 0.01


def test_the_bench_has_every_part(monkeypatch: pytest.MonkeyPatch):
    parts: list[object] = []
    for name in ("changes", "start", "rest"):
        monkeypatch.setattr(views, name, lambda *given, name=name: parts.append((name, given[:2])) or ([], []))
    found = run(members=7)
    assert (found["bench"], found["results"], found["goals"]) == ("views", [], [])
    assert parts == [("changes", (7, 6)), ("start", (30, 3)), ("rest", (7, 20.0))]


def test_a_sweep_is_a_curve(monkeypatch: pytest.MonkeyPatch):
    def pretend(members: int, rounds: int, progress: object, rate: int) -> object:
        return [result("join: senders blocked, p95", "ms", [members * 2.0]), result("sent", "messages/s", [rate])], []

    monkeypatch.setattr(views, "changes", pretend)
    (curve,) = run(sweep="members")["curves"]
    assert curve["points"] == [[members, members * 2] for members in views.SWEEP]
    with pytest.raises(BadInput, match="use members"):
        run(sweep="size")
