"""What the README tells a newcomer to do works as written."""

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def code_blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )


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
