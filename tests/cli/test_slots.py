"""``pluribus slots`` without a bus: files are checked and drawn, passphrases become verifiers."""

import json
from xml.etree import ElementTree

from pluribus.cli.app import run
from pluribus.slots.keys import is_verifier
from tests.slots.plans import FIGURE_2


def test_a_file_is_drawn(tmp_path, capsys):
    file, out = tmp_path / "figure2.bus", tmp_path / "bus.svg"
    file.write_text(FIGURE_2)
    assert run(["slots", "draw", str(file), "--out", str(out)]) == 0
    assert "figure2 is drawn in" in capsys.readouterr().out
    picture = ElementTree.parse(out).getroot()
    assert {group.get("id") for group in picture.iter("{http://www.w3.org/2000/svg}g")} == {
        "slot-producer",
        "slot-consumer1",
        "slot-consumer2",
        "slot-consumer3",
    }


def test_a_mistake_is_one_sentence(tmp_path, capsys):
    file = tmp_path / "wrong.bus"
    file.write_text("bus a\nslot b requierd")
    assert run(["slots", "check", str(file)]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("line 2, column 8: 'requierd' is no kind of slot; did you mean 'required'?")
    )


def test_doubts_are_an_answer_of_no(tmp_path, capsys):
    file = tmp_path / "lonely.bus"
    file.write_text("bus a\nslot b { in x }")
    assert run(["slots", "check", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["doubts"][0] == "nothing reaches b.x; connect it, or remove it"


def test_a_passphrase_becomes_a_verifier(monkeypatch, capsys):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("open sesame\n"))
    assert run(["slots", "key"]) == 0
    assert is_verifier(capsys.readouterr().out.strip())
