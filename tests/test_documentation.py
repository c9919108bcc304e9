"""What the documents tell a newcomer to do works as written.

Python in a document is run as a script; a block below ``<!-- save as NAME -->`` is saved under that name first, and a
test file is run by pytest. Shell commands of docs/sim.md are given in the folder with the saved files.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.features import feature_table

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCUMENTS = sorted((ROOT / "docs").rglob("*.md"))


def code_blocks(language: str, document: Path = README) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


def saved_files(document: Path, folder: Path) -> list[str]:
    """Save the blocks that have a name; their names."""
    named = re.findall(
        r"^<!-- save as (\S+) -->\n```python\n(.*?)^```$",
        document.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    for name, code in named:
        (folder / name).write_text(code, encoding="utf-8")
    return [name for name, _ in named]


def run(command: list[str], folder: Path) -> str:
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_the_first_example_in_two_terminals(tmp_path):
    saved_files(README, tmp_path)
    script = tmp_path / "alarm.py"
    # A bus of this test alone: whoever tries the README on this machine meanwhile is not part of it.
    script.write_text(script.read_text().replace("//demo", f"//demo-{os.getpid()}"))
    command = [sys.executable, script]
    terminals = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        printed = [{terminal.stdout.readline() for _ in range(2)} for terminal in terminals]
    finally:
        for terminal in terminals:
            terminal.kill()
            terminal.communicate()
    assert printed[0] == printed[1]
    assert [line.partition(" ")[2] for line in printed[0]] == ["says {'floor': 3}\n"] * 2
    assert README.read_text(encoding="utf-8").count(" says {'floor': 3}\n") == 2


def test_the_readmes_programs_print_what_it_says(tmp_path):
    """A block of text right below a program is what that prints."""
    programs = re.findall(
        r"^<!-- save as (\S+) -->\n```python\n(?:(?!^```).)*^```\n\n```text\n(.*?)^```$",
        README.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    names = saved_files(README, tmp_path)
    assert names[0] == "alarm.py" and [name for name, _ in programs] == names and len(names) == 5
    for name, printed in programs[1:]:  # the alarm needs two terminals, above
        assert run([sys.executable, name], tmp_path) == printed, name


def test_the_readmes_commands_work():
    """Those to start with, as far as they end by themselves within seconds; of the others, that they are there."""
    lines = [line.partition("#")[0].strip() for line in "".join(code_blocks("sh")).splitlines()]
    assert lines == ["make run", "source .venv/bin/activate", "pluribus doctor", "make test"]
    for line in lines:
        program, *arguments = line.split()
        if program == "make":
            assert run(["make", "--dry-run", *arguments], ROOT)
        elif program == "pluribus":
            assert run([sys.executable, "-m", "pluribus", *arguments], ROOT)


def readme_table(title: str) -> list[list[str]]:
    """The rows of the table below a heading."""
    part = README.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ") for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)] for row in rows]


def test_the_readme_names_every_verb_and_every_command_that_it_names_is_there(capsys):
    from pluribus.cli import app

    commands = [command for first, _ in readme_table("Command line") for command in re.findall(r"`([^`]+)`", first)]
    assert {command.split()[1] for command in commands} == set(app.VERBS)
    for command in commands:
        _, verb, *rest = command.split()
        parts = rest[0].split("\\|") if rest and rest[0].islower() else [None]
        for part in parts:
            assert app.run([verb, *([part] if part else []), "--help"]) == 0, command
            assert f"pluribus {verb}" in capsys.readouterr().out


def leaves(command):
    """The commands of a verb, itself if it has none."""
    parts = getattr(command, "commands", {})
    return [leaf for part in parts.values() for leaf in leaves(part)] if parts else [command]


def test_the_readmes_options_are_there_and_every_command_takes_json():
    from pluribus.cli import app

    for first, what in readme_table("Command line"):
        verbs = [command.split()[1] for command in re.findall(r"`([^`]+)`", first)]
        options = {
            option
            for verb in verbs
            for leaf in leaves(app.load_verb(verb))
            for one in leaf.params
            for option in one.opts
        }
        assert set(re.findall(r"--[a-z][a-z-]*", first + what)) <= options, verbs
    without = [
        f"{verb} {leaf.name}"
        for verb in app.VERBS
        for leaf in leaves(app.load_verb(verb))
        if not any("--json" in one.opts for one in leaf.params)
    ]
    assert without == []


def rows_of(text: str) -> set[str]:
    """``P1–P4, P7`` written out."""
    found = set()
    for part in text.split(", "):
        first, _, last = part.partition("–")
        letter = first[0]
        found |= {f"{letter}{number}" for number in range(int(first[1:]), int((last or first)[1:]) + 1)}
    return found


def test_the_readme_says_what_works_and_nothing_else():
    table = readme_table("What works")
    named = [row for *_, rows in table for row in rows_of(rows)]
    assert len(named) == len(set(named)), "a row of docs/features.md is named twice"
    planned = set().union(*(rows_of(rows) for style, _, rows in table if style == "planned"))
    assert set(named) == {feature.row for feature in feature_table()}
    assert planned == {feature.row for feature in feature_table() if feature.planned}


def test_extras_that_are_offered_are_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "peers"}
    part = README.read_text(encoding="utf-8").partition("Extras bring")[2].partition("## ")[0]
    assert {name.strip("[]") for name in re.findall(r"`(\[[a-z]+\])`", part)} == extras


EACH = """
import os, runpy, sys

import pluribus.sim, pluribus.sync

for file in sys.argv[1:]:
    child = os.fork()
    if not child:
        sys.argv = [file]
        runpy.run_path(file, run_name="__main__")
        break
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{file} failed")
"""
"""Runs scripts one after the other, each in a process of its own; the package is imported once for all of them."""

with_python = [document for document in DOCUMENTS if code_blocks("python", document)]


@pytest.mark.parametrize("document", with_python, ids=lambda document: document.relative_to(ROOT).as_posix())
def test_python_in_a_document_runs(document, tmp_path):
    for name in saved_files(document, tmp_path):
        runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if name.startswith("test_") else []
        run([sys.executable, *runner, name], tmp_path)
    saved = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.py")]
    scripts = []
    for number, code in enumerate(code_blocks("python", document), 1):
        if code not in saved:
            scripts.append(tmp_path / f"block_{number}.py")
            scripts[-1].write_text(code, encoding="utf-8")
    if scripts:
        run([sys.executable, "-c", EACH, *map(str, scripts)], tmp_path)


@pytest.mark.slow
def test_the_simulators_commands_work(tmp_path, monkeypatch, capsys):
    from pluribus.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    document = ROOT / "docs" / "sim.md"
    saved_files(document, tmp_path)
    commands = "".join(code_blocks("sh", document)).splitlines()
    assert len(commands) > 4 and any("--seeds 10" in command for command in commands)
    for command in commands:
        program, *arguments = shlex.split(command.replace("--seeds 10", "--seeds 1"))  # tests/sim plays more of them
        assert program == "pluribus" and app.run(arguments) == 0, capsys.readouterr().out


def test_the_simulators_first_example_is_the_same_twice(tmp_path):
    example, *_ = code_blocks("python", ROOT / "docs" / "sim.md")
    first, second = (run([sys.executable, "-c", example], tmp_path) for _ in range(2))
    assert first == second
    assert "while the network is split: [2, 2, 3, 3, 3]" in first
    assert first.count("hears {'floor': 3}") == 5
