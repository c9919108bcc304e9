"""``pluribus access`` against a bus with a keeper, whose loop is a thread of this process."""

import io
import json
import re

import pytest

from pluribus import sync
from pluribus.cli import app

PASSWORD = "correct horse battery"


@pytest.fixture
def url(tmp_path):
    with sync.connect(f"inproc://cli-access-{tmp_path.name}", store=tmp_path / "a.db", serve="127.0.0.1:0") as bus:
        host, port = bus._thread.ask(lambda: bus._real.doors[0].address)
        yield f"client://{host}:{port}/cli-access-{tmp_path.name}"


def run(capsys, *args):
    code = app.run(["access", *args])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def done(capsys, *args):
    code, out, said = run(capsys, *args)
    assert code == 0, said
    return out


def test_users_rules_and_tokens(url, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    assert run(capsys, "list", "--url", url)[1].startswith("no access list")
    done(capsys, "add", "rule", "anyone", "access:list", "all", "--url", url)
    done(capsys, "add", "user", "ann", "--role", "clerk", "--password-stdin", "--url", url)
    done(capsys, "add", "rule", "role:clerk", "queue:orders", "send", "--url", url)
    assert run(capsys, "check", "ann", "queue:orders", "send", "--url", url)[:2] == (0, "yes\n")
    assert run(capsys, "check", "ann", "queue:orders", "receive", "--url", url)[:2] == (1, "no\n")
    token = run(capsys, "token", "ann", "--for", "8h", "--url", url)[1].strip()
    assert re.fullmatch(r"plt\.[\w-]+\.[\w-]+", token)
    shown = json.loads(run(capsys, "list", "--json", "--url", url)[1])
    assert shown["users"] == [{"user": "ann", "roles": ["clerk"], "password": True, "certificate": ""}]
    assert {"who": "role:clerk", "destination": "queue:orders", "verb": "send"} in shown["rules"]
    assert shown["tokens"][0]["user"] == "ann" and token.split(".")[2] not in json.dumps(shown)
    done(capsys, "remove", "user", "ann", "--url", url)
    assert "ann" not in run(capsys, "list", "--url", url)[1]
    code, _, said = run(capsys, "add", "rule", "ann", "queue:orders", "sned", "--url", url)
    assert code == 2 and "no verb 'sned'" in said
    assert run(capsys, "add", "orders", "--url", url)[0] == 2
    assert run(capsys, "token", "ann", "--for", "long", "--url", url)[0] == 2
