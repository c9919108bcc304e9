"""The bench of ad hoc networks has a row and a curve for everything, the same figures for the same seeds."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from pluribus.bench import adhoc
from pluribus.bench.plot import draw
from pluribus.cli.app import run
from pluribus.core.errors import BadInput
from pluribus.sim.radio import PROTOCOLS, Outcome, Setting, Talked, play

DOCS = Path(__file__).parents[2] / "docs"
FAST = {"AMRIS": 0.3, "AMRoute": 0.7, "ODMRP": 0.95}


def pretend(protocol: str, setting: Setting) -> Outcome:
    """Ratios fall with speed as the survey expects; everything else is a number that can be told."""
    ratio = FAST.get(protocol, 0.98) if setting.speed_km_h > 50 else 0.99
    delivered = int(1_000 * ratio)
    data = delivered * (6 if protocol == "flooding" else 2)
    return Outcome(100, 1_000, delivered, 990, 2 * data, data, 50 * delivered, 10, 0, 1.0, 0.01)


def pretended_talk(protocol: str, setting: Setting) -> Talked:
    return Talked(10, 90, 45, True, 3.0, 100, 5, 45, 1_000, "")


@pytest.fixture
def pretending(monkeypatch):
    played: list[tuple[str, Setting]] = []

    def play_and_note(protocol: str, setting: Setting) -> Outcome:
        played.append((protocol, setting))
        return pretend(protocol, setting)

    monkeypatch.setattr(adhoc, "play", play_and_note)
    monkeypatch.setattr(adhoc, "talk", pretended_talk)
    return played


def test_every_point_is_played_once_with_five_seeds(pretending):
    shown: list[str] = []
    found = adhoc.run(progress=shown.append)
    points = sum(len(axis.values) for axis in adhoc.AXES.values()) - 2  # three axes share one point
    assert len(pretending) == len(set(pretending)) == points * len(PROTOCOLS) * 5
    assert {setting.seed for _, setting in pretending} == set(range(5))
    base = {(s.nodes, s.range_m, s.side_m, s.seconds) for _, s in pretending if s.nodes == 50}
    assert base == {(50, 250.0, 1_000.0, 120.0)}
    assert {s.speed_km_h for _, s in pretending} >= {0, 72}
    assert f"({points * len(PROTOCOLS)} of {points * len(PROTOCOLS)})" in " ".join(shown)
    cases = {row["case"]: row["value"] for row in found["results"]}
    assert cases["AMRIS, speed 72: delivered"] == 30.0 and cases["ODMRP, speed 72: delivered"] == 95.0
    assert cases["flooding, members 40: control"] == 50.0 and cases["path at sending, density 20"] == 99.0
    assert cases["conversations over AMRIS, 20 nodes: by multicast alone"] == 50.0
    assert cases["conversations over ODMRP, 50 nodes: same tree in the end"] == 100.0
    assert all(goal["met"] for goal in found["goals"]) and len(found["goals"]) == 7
    assert len(found["curves"]) == 3 * (3 * len(PROTOCOLS) + 1)


def test_goals_can_be_missed(pretending, monkeypatch):
    monkeypatch.setitem(FAST, "ODMRP", 0.5)
    monkeypatch.setitem(FAST, "AMRIS", 0.99)
    monkeypatch.setattr(
        adhoc, "talk", lambda protocol, setting: Talked(9, 9, 1, setting.nodes == 50, 9, 9, 5, 4, 1, "")
    )
    goals = {goal["goal"].partition(",")[0]: goal for goal in adhoc.run()["goals"]}
    assert not goals["the mesh keeps its delivery"]["met"]
    assert goals["conversations in which every member shows the same tree in the end"]["measured"] == 50.0
    missed = [goal["goal"] for goal in adhoc.run()["goals"] if not goal["met"]]
    assert [goal for goal in missed if "trees lose it, AMRIS" in goal] and len(missed) == 3


def test_a_sweep_is_one_axis_and_a_night_has_more(pretending):
    found = adhoc.run(sweep="density", seed=7)
    assert {curve["x"] for curve in found["curves"]} == {"nodes on a square kilometre"}
    assert {setting.seed for _, setting in pretending} == set(range(7, 12))
    pretending.clear()
    adhoc.run(sweep="loss", full=True)
    assert {setting.loss for _, setting in pretending} >= {0.0, 0.3}
    assert {setting.seconds for _, setting in pretending} == {600.0} and len({s.seed for _, s in pretending}) == 30
    with pytest.raises(BadInput, match="speed, density, members"):
        adhoc.run(sweep="loss")


def test_pictures_are_a_grid_of_axes_and_measures(pretending):
    svg = "{http://www.w3.org/2000/svg}"
    whole = ElementTree.fromstring(draw("t", adhoc.run()["curves"]))
    panels = whole.findall(f"{svg}svg")
    assert len(panels) == 9 and len({(panel.get("x"), panel.get("y")) for panel in panels}) == 9
    one = ElementTree.fromstring(draw("t", adhoc.run(sweep="speed")["curves"]))
    assert {panel.get("x") for panel in one.findall(f"{svg}svg")} == {"0"}, "below each other"
    names = [text.text for text in one.iter(f"{svg}text")]
    assert all(names.count(protocol) == 3 for protocol in PROTOCOLS) and names.count(adhoc.PATH) == 1


@pytest.mark.slow
def test_the_command_runs_and_repeats_itself(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(adhoc, "PROTOCOLS", {name: PROTOCOLS[name] for name in ("flooding", "AMRIS", "ODMRP")})
    reports = []
    for _ in range(2):
        assert run(["bench", "adhoc", "--quick", "--plot", str(tmp_path / "a.svg"), "--json"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    assert reports[0]["results"] == reports[1]["results"] and reports[0]["curves"] == reports[1]["curves"]
    same = [row for row in reports[0]["results"] if row["case"].endswith("same tree in the end")]
    assert len(same) == 4 and {row["value"] for row in same} == {100.0}
    assert ElementTree.fromstring((tmp_path / "a.svg").read_text()).tag.endswith("svg")


def table_of_speeds() -> dict[str, list[float]]:
    """The first table of the page: protocol, then delivered in % at each speed."""
    text = (DOCS / "adhoc.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Za-z ]+) \|((?: [\d.]+ \|){6})$", text, re.MULTILINE)
    return {name: [float(cell) for cell in cells.split("|") if cell.strip()] for name, cells in reversed(rows)}


@pytest.mark.parametrize(("protocol", "speed"), [("AMRIS", 72.0), ("ODMRP", 0.0)])
def test_the_page_says_what_the_bench_says(protocol: str, speed: float):
    """One cell of the table is played anew; a change of a protocol means a new page."""
    runs = [play(protocol, msgspec.structs.replace(adhoc.BASE, speed_km_h=speed, seed=seed)) for seed in range(5)]
    found = sorted(100 * outcome.ratio for outcome in runs)[2]
    at = adhoc.AXES["speed"].values.index(speed)
    assert table_of_speeds()[protocol][at] == round(found, 1)


@pytest.mark.parametrize("axis", adhoc.AXES)
def test_the_pictures_of_the_page_have_every_protocol(axis: str):
    picture = (DOCS / f"adhoc-{axis}.svg").read_text(encoding="utf-8")
    marks = picture.count("<circle")
    assert marks == len(adhoc.AXES[axis].values) * (3 * len(PROTOCOLS) + 1)
    assert all(f">{protocol}</text>" in picture for protocol in PROTOCOLS)
