"""What the documents tell a newcomer to do works as written.

Python in a document is run as a script; a block below ``<!-- save as NAME -->`` is saved under that name first, and a
test file is run by pytest. Shell commands of docs/sim.md are given in the folder with the saved files.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

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
    (example,) = code_blocks("python")
    script = tmp_path / "alarm.py"
    # A bus of this test alone: whoever tries the README on this machine meanwhile is not part of it.
    script.write_text(example.replace("//demo", f"//demo-{os.getpid()}"))
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


def test_the_commands_to_start_with_are_targets_of_make():
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^make (\w+)", "\n".join(code_blocks("sh")), flags=re.MULTILINE)
    assert commands == ["run", "test"]
    for command in commands:
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


with_python = [document for document in DOCUMENTS if code_blocks("python", document)]


@pytest.mark.parametrize("document", with_python, ids=lambda document: document.relative_to(ROOT).as_posix())
def test_python_in_a_document_runs(document, tmp_path):
    for name in saved_files(document, tmp_path):
        runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if name.startswith("test_") else []
        run([sys.executable, *runner, name], tmp_path)
    saved = [path.read_text(encoding="utf-8") for path in tmp_path.glob("*.py")]
    for code in code_blocks("python", document):
        if code not in saved:
            run([sys.executable, "-c", code], tmp_path)


@pytest.mark.slow
def test_the_simulators_commands_work(tmp_path):
    document = ROOT / "docs" / "sim.md"
    saved_files(document, tmp_path)
    commands = "".join(code_blocks("sh", document)).splitlines()
    assert len(commands) > 4 and any("--seeds 10" in command for command in commands)
    for command in commands:
        program, *arguments = shlex.split(command.replace("--seeds 10", "--seeds 2"))  # tests/sim plays more of them
        assert program == "pluribus"
        run([sys.executable, "-m", "pluribus", *arguments], tmp_path)


def test_the_simulators_first_example_is_the_same_twice(tmp_path):
    example, *_ = code_blocks("python", ROOT / "docs" / "sim.md")
    first, second = (run([sys.executable, "-c", example], tmp_path) for _ in range(2))
    assert first == second
    assert "while the network is split: [2, 2, 3, 3, 3]" in first
    assert first.count("hears {'floor': 3}") == 5
