"""The form of a bench's result, and the harness that runs its processes. What is measured is not tested here."""

import json
import re
import statistics
from inspect import signature

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.bench import BENCHES, bench
from pluribus.bench.engines import SIZES, carried, percentile
from pluribus.bench.ports import free_port
from pluribus.bench.processes import Together, measure
from pluribus.bench.report import at_least, at_most, report, result
from pluribus.cli.app import EXIT_BAD_INPUT, load_verb, run
from pluribus.core.errors import BadInput, PluribusError
from tests.features import ROOT

numbers = st.floats(1e-3, 1e9)


@given(st.lists(numbers, min_size=1))
def test_a_result_is_the_median_with_its_extremes(values):
    found = result("case", "messages/s", values)
    assert found.value == pytest.approx(statistics.median(values), abs=1e-3)
    assert found.min <= found.value <= found.max
    assert (found.case, found.unit, found.runs) == ("case", "messages/s", len(values))


@pytest.mark.parametrize(("measured", "least", "most"), [(0.64, False, True), (0.65, True, True), (0.66, True, False)])
def test_a_goal_is_met_at_its_very_value(measured, least, most):
    assert at_least("goal", measured, 0.65).met is least
    assert at_most("goal", measured, 0.65).met is most


def test_a_goal_that_rounds_up_to_its_value_is_not_met():
    goal = at_least("goal", 0.64999, 0.65)
    assert (goal.measured, goal.met) == (0.65, False)


def test_a_report_is_plain_data_in_the_agreed_form():
    made = report("name", [result("case", "s", [1.0, 2.0, 3.0])], [at_most("goal", 1.0, 2.0)])
    assert json.loads(json.dumps(made)) == made
    assert list(made) == ["bench", "environment", "results", "goals"]
    assert made["results"] == [{"case": "case", "value": 2.0, "unit": "s", "min": 1.0, "max": 3.0, "runs": 3}]
    assert made["goals"] == [{"goal": "goal", "measured": 1.0, "wanted": 2.0, "met": True}]
    assert made["environment"]["cores"] >= 1
    assert "/" not in made["environment"]["executable"], "where a program lies is nobody's business"


def test_percentiles_are_values_that_were_measured():
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 50) == 51.0
    assert percentile(values, 99) == 100.0
    assert percentile([7.0], 99) == percentile([7.0], 0) == 7.0


def test_a_free_port_is_one():
    assert 1_024 <= free_port() <= 65_535


def test_every_size_of_the_goals_is_measured():
    assert SIZES == (100, 1_024, 16_384)


def test_a_bench_that_is_not_there_is_refused_with_the_list():
    with pytest.raises(BadInput, match="no bench 'nonsense': use engines"):
        bench("nonsense")
    assert set(BENCHES) >= {"engines", "sim", "fuzz"}


@pytest.mark.usefixtures("nats_server")
def test_a_server_of_the_benchs_own_is_started_and_ended():
    with carried() as place:
        host, _, port = place.partition(":")
        assert host == "127.0.0.1" and int(port) > 0


def shout(together, word):
    together.wait()
    together.answer(word)


def fail(together):
    together.wait()
    raise SystemExit(3)


def test_roles_start_together_and_their_answers_come_back():
    assert sorted(measure([(shout, ("a",)), (shout, ("b",))], 2)) == ["a", "b"]


def test_a_process_that_fails_is_told_at_once():
    with pytest.raises(PluribusError, match="a benchmark process failed"):
        measure([(fail, ())], 1, seconds=100)


def test_an_answer_that_does_not_come_is_told():
    with pytest.raises(PluribusError, match=r"did not answer in 0\.01 s"):
        Together(1).collect(0.01)


def test_an_option_of_another_bench_is_refused(capsys):
    assert run(["bench", "views", "--peers", "zmq"]) == EXIT_BAD_INPUT
    assert "--peers changes nothing in the bench views" in capsys.readouterr().err
    assert run(["bench", "match", "--secret"]) == EXIT_BAD_INPUT
    assert "--secret changes nothing" in capsys.readouterr().err


def test_every_bench_that_a_document_starts_takes_its_options():
    options = {word: parameter.name for parameter in load_verb("bench").params for word in parameter.opts}
    found = 0
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for name, words in re.findall(r"pluribus bench ([a-z-]+)([^`|#\n<]*)", document.read_text(encoding="utf-8")):
            taken = {*signature(bench(name)).parameters, "plot", "json"}
            for word in words.split():
                assert not word.startswith("--") or options[word] in taken, (document.name, name, word)
                found += 1
    assert found > 50, "else this shows nothing"
