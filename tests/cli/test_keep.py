"""``pluribus keep``: the code of users' machines, and what is wrong in one sentence."""

import asyncio
import json

import pytest

import pluribus
from pluribus.cli import app
from tests.harness import new_bus
from tests.real.counted import Counter


def test_a_keeper_gets_the_code_of_a_users_machine_from_the_command_line(tmp_path, capsys):
    path, url = tmp_path / "kept.db", new_bus()

    async def counted() -> None:
        async with pluribus.connect(url, store=path, machines={"counter": Counter}) as bus:
            visits = await bus.replica("visits", "counter", durable=True)
            assert await visits.call(b"5") == b"5"

    asyncio.run(counted())
    machine = "counter=tests.real.counted:Counter"
    options = ["--store", str(path), "--url", url, "--machine", machine, "--seconds", "0.01", "--json"]
    assert app.run(["keep", *options]) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["role"] == "leader" and last["halted"] == ""
    assert [(one["machine"], one["kind"]) for one in last["machines"]] == [("topics", "topics"), ("visits", "counter")]


@pytest.mark.parametrize(
    ("machine", "part"),
    [
        ("counter", "is not KIND=MODULE:CLASS"),
        ("counter=tests.real.counted", "is not KIND=MODULE:CLASS"),
        ("counter=no.such.module:Counter", "no.such.module cannot be imported"),
        ("counter=tests.real.counted:Nobody", "is no machine, it lacks apply, snapshot, restore"),
        ("queue=tests.real.counted:Counter", "give yours another name"),
    ],
)
def test_code_that_cannot_be_had_is_one_sentence(tmp_path, capsys, machine, part):
    options = ["--store", str(tmp_path / "kept.db"), "--url", new_bus(), "--machine", machine, "--seconds", "0.01"]
    assert app.run(["keep", *options]) == 2
    err = capsys.readouterr().err
    assert part in err and err.startswith("pluribus: ") and "Traceback" not in err


def test_a_store_without_a_folder_is_one_sentence(tmp_path, capsys):
    assert app.run(["keep", "--store", str(tmp_path / "nowhere" / "kept.db"), "--url", new_bus()]) == 2
    assert "is no folder: make it first" in capsys.readouterr().err


@pytest.mark.parametrize("serve", ["nowhere", "127.0.0.1:99999", "127.0.0.1:1,127.0.0.1:2"])
def test_a_wrong_address_is_told_before_a_store_is_made(tmp_path, capsys, serve):
    assert app.run(["keep", "--store", str(tmp_path / "kept.db"), "--url", new_bus(), "--serve", serve]) == 2
    assert capsys.readouterr().err.startswith("pluribus: ") and not list(tmp_path.iterdir())
