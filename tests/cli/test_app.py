"""The command line as a user meets it: exit codes, one sentence for an error, verbs that load when they are called."""

import os
import signal
import subprocess
import sys
import textwrap
import types

import pytest

from pluribus.cli import app
from pluribus.core.errors import PluribusError


@pytest.fixture
def verb(monkeypatch):
    """Adds a verb `try` that runs the function it is given."""

    def add(function):
        module = types.ModuleType("pluribus.cli.try")
        module.command = function
        monkeypatch.setitem(sys.modules, "pluribus.cli.try", module)
        monkeypatch.setitem(app.VERBS, "try", "A verb of this test.")

    return add


def raising(error):
    def command() -> None:
        raise error

    return command


def test_an_error_of_ours_is_one_sentence_and_exit_code_2(verb, capsys):
    verb(raising(PluribusError("port 7 is taken;\n   choose another")))
    assert app.run(["try"]) == 2
    captured = capsys.readouterr()
    assert captured.err == "pluribus: port 7 is taken; choose another\n"
    assert captured.out == ""


def test_an_error_of_ours_inside_a_task_group_is_one_sentence(verb, capsys):
    verb(raising(ExceptionGroup("tasks", [PluribusError("first"), ExceptionGroup("more", [PluribusError("second")])])))
    assert app.run(["try"]) == 2
    assert capsys.readouterr().err == "pluribus: first\n"


@pytest.mark.parametrize("bug", [KeyError("a bug"), ExceptionGroup("both", [PluribusError("ours"), KeyError("a bug")])])
def test_a_bug_is_not_hidden(verb, bug):
    verb(raising(bug))
    with pytest.raises(type(bug)):
        app.run(["try"])


def test_an_interrupt_is_quiet(verb, capsys):
    verb(raising(KeyboardInterrupt()))
    assert app.run(["try"]) == 130
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["dancing"], "pluribus: No such command 'dancing'; see 'pluribus --help'.\n"),
        (["doctor", "--tango"], "pluribus: No such option: --tango; see 'pluribus doctor --help'.\n"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(arguments, sentence, capsys):
    assert app.run(arguments) == 2
    assert capsys.readouterr().err == sentence


def test_a_verb_gets_its_options_and_its_exit_code_is_kept(verb, capsys):
    import typer

    def command(name: str, times: int = 1) -> None:
        typer.echo(name * times)
        raise typer.Exit(1)

    verb(command)
    assert app.run(["try", "ab", "--times", "3"]) == 1
    assert capsys.readouterr().out == "ababab\n"


def test_help_lists_every_verb_and_imports_none():
    script = textwrap.dedent(
        """
        import sys
        from pluribus.cli import app
        assert app.run(["--help"]) == 0
        loaded = [verb for verb in app.VERBS if f"pluribus.cli.{verb}" in sys.modules]
        print("loaded:", loaded)
        """
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "loaded: []" in answer
    for verb_name, meaning in app.VERBS.items():
        assert verb_name in answer
        assert meaning.split()[0] in answer


def test_no_arguments_says_what_to_try_first(capsys):
    assert app.run([]) == 0
    said = capsys.readouterr().out
    assert all(f"pluribus {verb}" in said for verb in ("demo", "doctor", "sub", "pub", "--help"))


def test_shells_complete_verbs_and_their_commands():
    def completed(words):
        environment = {"_PLURIBUS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        command = [sys.executable, "-m", "pluribus"]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}).stdout.split()

    assert set(completed("pluribus to")) == {"topics", "top"}
    assert {"ls", "show", "retain", "delete"} <= set(completed("pluribus topics "))


def test_python_dash_m_is_the_same_command():
    answer = subprocess.run([sys.executable, "-m", "pluribus", "dancing"], capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stderr.startswith("pluribus: ")
    assert "Traceback" not in answer.stderr


def test_control_c_ends_a_running_process_quietly():
    script = textwrap.dedent(
        """
        import asyncio, signal, sys, types
        from pluribus.cli import app
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell has it ignored
        async def wait():
            print("waiting", flush=True)
            await asyncio.Event().wait()
        module = types.ModuleType("pluribus.cli.wait")
        module.command = lambda: asyncio.run(wait())
        sys.modules["pluribus.cli.wait"] = module
        app.VERBS["wait"] = "Wait for an interrupt."
        sys.exit(app.run(["wait"]))
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"waiting\n"
        process.send_signal(signal.SIGINT)
        _, complaint = process.communicate(timeout=30)
    assert (process.returncode, complaint) == (130, b"")
