"""``pluribus demo`` as a person sees it: in a terminal of 80×24 and of 160×50, killed into, and ended with Ctrl-C; and
as a program sees it, without one."""

import json
import re
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from tests.terminal import Terminal

DEMO = [sys.executable, "-m", "pluribus", "demo"]
CALM = ["--rate", "25"]
"""Prices a second and exchange: what is looked for here takes no more."""
CTRL_C = "\x03"
LONG_S = 200


def test_make_run_is_the_demo():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    assert re.search(r"^run: .*\n\t@\$\(VENV\)/bin/pluribus demo \$\(ARGS\)$", makefile, flags=re.MULTILINE)


def numbers(line: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", line)]


def on_disk(text: str) -> int:
    found = re.search(r"([\d,]+) prices, [\d.]+ MB", text)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_on_a_small_terminal(java):
    with Terminal([*DEMO, *CALM], 80, 24) as seen:
        seen.wait_until(lambda text: "the dealing room: starting" in text, LONG_S, "the first picture")
        assert "Ctrl-C ends it" in seen.text and "Four exchanges publish prices" in seen.text
        seen.wait_until(lambda text: "Spark starts: Java" in text, LONG_S, "that Spark starts first")
        seen.wait_until(lambda text: "room: open" in text and " leads" in text, LONG_S, "the open room")
        seen.wait_until(lambda text: on_disk(text) > 500, LONG_S, "prices on disk")
        assert {"green", "red", "cyan"} <= seen.colours
        assert "takes no part" not in seen.typed, "from the first picture on"
        for symbol in ("IBM", "RIO", "AAPL", "SIE"):
            assert re.search(rf"{symbol} +\d+\.\d\d [+-]\d", seen.text), symbol
        seen.press("k")
        seen.wait_until(lambda text: "KILLED" in text and "keeper" in text, LONG_S, "a killed keeper")
        seen.wait_until(lambda text: "leads now, and the log goes on" in text, LONG_S, "another leader")
        before = on_disk(seen.text)
        seen.wait_until(lambda text: on_disk(text) > before + 500, LONG_S, "that the log goes on")
        seen.wait_until(lambda text: re.search(r"keeper-\d is back", text), LONG_S, "the keeper again")
        seen.press("p")
        seen.wait_until(lambda text: re.search(r"^NYSE KILLED", text, flags=re.MULTILINE), LONG_S, "a killed provider")
        seen.wait_until(lambda text: "nyse is back" in text, LONG_S, "the provider again")
        seen.wait_until(lambda text: "ALERT" in text and "Spark is live" in text, 2 * LONG_S, "an alert by Spark")
        assert "0 lost" in seen.text and len(seen.lines) == 24
        asked = monotonic()
        seen.press(CTRL_C)
        seen.wait_until(lambda text: "Ctrl-C: closing" in text, 20, "that Ctrl-C was heard")
        assert seen.end(30) == 0
        assert monotonic() - asked < 15, "five seconds, on a machine that is not busy"
        summary = " ".join(seen.lines)
        assert "0 lost" in summary and re.search(r"Killed meanwhile: keeper-\d, nyse", summary)
        assert "the loop is late" not in seen.typed and "Traceback" not in seen.typed


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_demo_on_a_large_terminal():
    with Terminal([*DEMO, *CALM, "--no-spark"], 160, 50) as seen:
        seen.wait_until(lambda text: "room: open" in text and on_disk(text) > 500, LONG_S, "prices on disk")
        seen.wait_until(lambda text: "follows" in text and " leads" in text, LONG_S, "the keepers")
        text = seen.text
        for part in (
            "symbol LIKE 'B%' AND volume >= 500",
            "price BETWEEN 110 AND 130",
            "averages by Spark",
            "alerts by",
        ):
            assert part in text, part
        dealers = [line for line in seen.lines if re.match(r" ?\d+ stocks/", line)]
        assert len(dealers) == 20 and len(seen.lines) == 50
        seen.press(CTRL_C)
        assert seen.end(60) == 0
        assert "0 lost" in " ".join(seen.lines)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_ctrl_c_while_the_room_starts_ends_it():
    with Terminal(DEMO, 80, 24) as seen:
        seen.wait_until(lambda text: "the dealing room: starting" in text, LONG_S, "the first picture")
        seen.press(CTRL_C)
        assert seen.end(60) == 0
        assert "nothing was published" in seen.text or "0 lost" in " ".join(seen.lines)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_spark_reads_to_the_end_and_alerts_of_every_turn(java):
    command = [*DEMO, "--rate", "80", "--seconds", "10", "--patience", "250", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=380)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    summary = json.loads(answer.stdout)
    assert summary["spark"] == "Spark found every turn"
    assert summary["alerts"] == summary["turns"] > 0
    assert summary["lost"] == summary["unasked"] == 0 < summary["averages"]
    assert summary["spark_rows"] >= summary["published"] > 1_000
    report = summary["report"]
    assert report["adds_up"] and report["read"] == report["good"] >= summary["published"]
