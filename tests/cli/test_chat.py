"""``pluribus chat --tui`` as a program uses it: lines of a file in, documents out."""

import json
import subprocess
import sys


def test_lines_of_a_file_are_said(tmp_path):
    script = tmp_path / "lines"
    script.write_text("hello\n/re 0 I am here\n/join \n/quit\nnever\n")
    command = [sys.executable, "-m", "pluribus", "chat", "--tui", "lounge", "--name", "ann", "--json"]
    with script.open() as lines:
        answer = subprocess.run(
            [*command, "--url", "inproc://lines"], stdin=lines, capture_output=True, text=True, timeout=100
        )
    assert (answer.returncode, answer.stderr) == (0, "")
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    first, second = [one for one in found if "body" in one]
    assert (first["body"], second["body"], second["parent"]) == ("hello", "I am here", first["id"])
    assert any("is not a name" in one.get("note", "") for one in found), "a mistake is told, and nothing ends"
