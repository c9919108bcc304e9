"""``pluribus bench views``: the cost of a change of membership for the members that go on, and the cost of membership
at rest.

*Changes.* Members that each send at a pace; one joins, one leaves or is killed, over and over; sometimes it is the
eldest, which leads. A member is blocked while it must not send; its own statistics have these times.

*Start.* Many processes at once; the time runs from when the last has loaded its program.

*Rest.* No member sends; the processor time of each process over a while.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import msgspec

from ..core.errors import BadInput
from .crew import Crew, Member, crew
from .engines import percentile
from .ports import free_port
from .report import Curve, Goal, Result, at_most, report, result

RATE = 1_000
"""Messages a second of each member."""
START_MEMBERS = 30
SWEEP = (3, 6, 10, 15, 20)
SETTLE_S = 1.0
IDLE_S = 20.0
BLOCKED_S, CRASH_S, START_S, IDLE_SHARE = 0.050, 2.0, 5.0, 0.01

Progress = Callable[[str], None]


def run(
    *,
    quick: bool = False,
    members: int = 10,
    sweep: str = "",
    progress: Progress = lambda text: None,
    **_: Any,
) -> dict[str, Any]:
    if sweep:
        return swept(sweep, 1 if quick else 2, progress)
    rounds, idle_s, many = (1, 2.0, members) if quick else (6, IDLE_S, START_MEMBERS)
    parts: list[Part] = [
        changes(members, rounds, progress),
        start(many, 1 if quick else 3, progress),
        rest(members, idle_s, progress),
    ]
    results = [row for rows, _ in parts for row in rows]
    goals = [goal for _, wanted in parts for goal in wanted]
    return report("views", results, goals)


Part = tuple[list[Result], list[Goal]]


def swept(what: str, rounds: int, progress: Progress) -> dict[str, Any]:
    """The cost of a change with more and more members, each of which sends less, so that the total stays the same."""
    if what != "members":
        raise BadInput(f"--sweep {what} is nothing that views grow by: use members")
    results: list[Result] = []
    blocked: list[list[float]] = []
    for members in SWEEP:
        rows, _ = changes(members, rounds, progress, RATE * SWEEP[0] // members)
        every = [row for row in rows if row.case.endswith("blocked, p95")]
        results += [msgspec.structs.replace(row, case=f"{members} members, {row.case}") for row in rows]
        blocked.append([float(members), max(row.value for row in every)])
    return report("views", results, [], [Curve("senders blocked, p95", "members", "ms", blocked)])


def changes(members: int, rounds: int, progress: Progress, rate: int = RATE) -> Part:
    """Joins, and as many leaves and crashes; every second time the eldest goes."""
    blocked: dict[str, list[float]] = {"join": [], "leave": [], "crash": []}
    took: dict[str, list[float]] = {"join": [], "leave": [], "crash": []}
    waits: list[float] = []
    with crew(_url(), rate) as team:
        _gather(team, members)
        rates = _rates(team)
        for number in range(rounds * 2):
            kind = "crash" if number % 2 else "leave"
            progress(f"change {number + 1} of {rounds * 2}: a join and a {kind}")
            newcomer = team.add(wait=True)
            team.until(partial(_loaded, newcomer), "newcomer")
            _settle(team)
            began = monotonic()
            newcomer.say("connect")
            took["join"].append(team.all_see(members + 1, began) - began)
            blocked["join"] += _settle(team, but=newcomer)
            eldest = number % 4 >= 2
            goes = next(member for member, told in zip(team.members, team.ask(), strict=True) if told.eldest == eldest)
            team.dismiss(goes)
            began = goes.kill() if kind == "crash" else _leave(goes)
            took[kind].append(team.all_see(members, began) - began)
            blocked[kind] += _settle(team)
            waits += [told.send_s_max for told in team.ask()]
    every = [blocked_s for values in blocked.values() for blocked_s in values]
    rows = [
        result(f"sent by each of {members}", "messages/s", rates),
        *(row for kind, values in blocked.items() for row in _spread(f"{kind}: senders blocked", values)),
        *_spread("longest await send around a change", waits),
        *(result(f"{kind}: until all have the view", "ms", _ms(values)) for kind, values in took.items()),
    ]
    return rows, [
        at_most("senders blocked by a view change, p95, ms", percentile(_ms(every), 95), BLOCKED_S * 1e3),
        at_most("kill -9 to the new view at all survivors, s", max(took["crash"]), CRASH_S),
    ]


def start(members: int, runs: int, progress: Progress) -> Part:
    """Start all members at once; returns the time at which the last one sees a view of all."""
    took = []
    for attempt in range(runs):
        progress(f"{members} processes start, {attempt + 1} of {runs}")
        with crew(_url(), 0) as team:
            for _ in range(members):
                team.add()
            formed = team.all_see(members, 0.0)
            took.append(formed - max(member.imported_at for member in team.members))
    row = result(f"{members} processes form one view after the last import", "s", took)
    return [row], [at_most(f"{members} processes form one view, s after the last import", max(took), START_S)]


def rest(members: int, seconds: float, progress: Progress) -> Part:
    """The share of a core that a member uses while nobody sends."""
    progress(f"{members} members at rest for {seconds:g} s")
    with crew(_url(), 0) as team:
        _gather(team, members)
        _settle(team)
        before = team.ask()
        team.hear(seconds)
        after = team.ask()
    shares = [(late.cpu_s - early.cpu_s) / (late.at - early.at) for early, late in zip(before, after, strict=True)]
    row = result(f"a member of {members} at rest", "% of a core", [share * 100 for share in shares])
    return [row], [at_most(f"a member of {members} at rest, share of a core", statistics.median(shares), IDLE_SHARE)]


def _url() -> str:
    return f"multicast://bench-{free_port()}"


def _gather(team: Crew, members: int) -> None:
    for _ in range(members):
        team.add()
    team.all_see(members, 0.0)


def _loaded(member: Member) -> bool:
    return member.imported_at > 0


def _leave(member: Member) -> float:
    began = monotonic()
    member.say("leave")
    return began


def _rates(team: Crew) -> list[float]:
    """True if members keep their pace: on a machine that is too slow, other results mean less."""
    before = team.ask()
    team.hear(SETTLE_S)
    after = team.ask()
    return [(late.sent - early.sent) / (late.at - early.at) for early, late in zip(before, after, strict=True)]


def _settle(team: Crew, but: Member | None = None) -> list[float]:
    """Wait for the end of changes; returns how long they blocked each member, and clears these numbers."""
    team.hear(SETTLE_S)
    found: list[float] = []
    for member in team.members:
        found += member.blocked_s if member is not but else []
        member.blocked_s = []
        member.seen = member.seen[-1:]
    return found


def _spread(case: str, values_s: list[float]) -> list[Result]:
    return [result(f"{case}, p{percent}", "ms", [percentile(_ms(values_s), percent)]) for percent in (50, 95, 100)]


def _ms(values_s: list[float]) -> list[float]:
    return [value * 1e3 for value in values_s]
