"""Pictures of curves: every point is where its values say, on scales that hold them all."""

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.bench import plot
from pluribus.bench.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, draw
from pluribus.cli import bench as command
from pluribus.cli.app import EXIT_BAD_INPUT, run
from pluribus.core.errors import BadInput

numbers = st.floats(0, 1e9) | st.floats(1e-3, 10)
points = st.lists(st.tuples(st.floats(1, 1e6), numbers), min_size=1, max_size=8)


def curve(name: str, of: list) -> dict[str, object]:
    return {"curve": name, "x": "members", "unit": "messages/s", "points": [list(point) for point in of]}


@given(st.lists(points, min_size=1, max_size=3))
def test_every_point_is_inside_and_marked(curves: list):
    picture = ElementTree.fromstring(draw("title", [curve(f"curve {at}", of) for at, of in enumerate(curves)]))
    marks = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(marks) == sum(map(len, curves))
    for mark in marks:
        assert LEFT - 0.1 <= float(mark.get("cx")) <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= float(mark.get("cy")) <= HEIGHT - BOTTOM + 0.1


def test_more_is_higher_and_further_right():
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', draw("t", [curve("c", [(2, 10), (4, 20), (6, 5)])]))
    (x1, y1), (x2, y2), (x3, y3) = [(float(x), float(y)) for x, y in found]
    assert x1 < x2 < x3 and y2 < y1 < y3


def test_wide_ranges_are_logarithmic_and_narrow_ones_begin_at_zero():
    scale, ticks = plot._scale([100.0, 16_384.0])
    assert ticks == [100.0, 1_000.0, 10_000.0, 100_000.0] and scale(1_000.0) == pytest.approx(1 / 3)
    scale, ticks = plot._scale([80.0, 100.0])
    assert ticks[0] == 0.0 and ticks[-1] >= 100.0 and scale(50.0) == pytest.approx(50 / ticks[-1])


def test_names_are_text_and_no_markup():
    picture = draw("a < b & c", [curve("<script>", [(1, 1)])])
    assert "<script>" not in picture and "a &lt; b &amp; c" in picture


def test_nothing_to_draw_is_said():
    with pytest.raises(BadInput, match="use --sweep"):
        draw("t", [])


def test_the_command_draws_what_was_measured(tmp_path, monkeypatch, capsys):
    outcome = {"bench": "group", "results": [], "goals": [], "curves": [curve("fifo", [(2, 100), (4, 50)])]}
    monkeypatch.setattr(command, "bench", lambda name: lambda **wanted: outcome)
    file = tmp_path / "rates.svg"
    assert run(["bench", "group", "--plot", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == outcome
    assert ElementTree.fromstring(file.read_text()).tag.endswith("svg")


def test_a_picture_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path, monkeypatch, capsys):
    def measured(**wanted):
        raise AssertionError("something was measured")

    monkeypatch.setattr(command, "bench", lambda name: measured)
    for file in (tmp_path / "no" / "folder.svg", tmp_path):
        assert run(["bench", "group", "--plot", str(file)]) == EXIT_BAD_INPUT
        assert "cannot be written" in capsys.readouterr().err
