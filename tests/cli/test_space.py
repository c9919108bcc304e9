"""``pluribus space`` as typed by a person: tuples in and out, a list of spaces, and what is said of bad input."""

import asyncio
import json
import sys

import pluribus
from pluribus.cli import app
from tests.harness import eventually, new_bus, on_a_loop


async def typed(*words):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "pluribus",
        "space",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode, out.decode(), err.decode()


@on_a_loop
async def test_tuples_by_hand(tmp_path):
    async with pluribus.connect(new_bus(), serve="127.0.0.1:0", store=tmp_path / "a.db") as bus:
        host, port = bus.doors[0].address
        url = f"client://{host}:{port}/{bus.url.bus}"
        jobs = await bus.space("jobs", durable=True)
        assert (await typed("write", "jobs", '["job", 7]', "--durable", "--url", url))[0] == 0
        assert await jobs.read(("job", int), timeout=30) == ("job", 7)
        code, out, _ = await typed("read", "jobs", '["job", "?int"]', "--durable", "--url", url, "--json")
        assert code == 0 and json.loads(out)["tuple"] == ["job", 7]
        code, out, _ = await typed("count", "jobs", "--durable", "--url", url)
        assert code == 0 and "1" in out
        code, out, _ = await typed("take", "jobs", '["job", "?"]', "--where", "f1 > 5", "--durable", "--url", url)
        assert code == 0 and json.loads(out) == ["job", 7]
        code, out, _ = await typed("take", "jobs", '["job", "?"]', "--wait", "0", "--durable", "--url", url)
        assert code == 1 and "nothing matches" in out
        code, out, _ = await typed("ls", "--url", url, "--json")
        assert code == 0 and "jobs" in out
        assert await jobs.count() == 0
        await jobs.write((b"bytes", 1))
        code, out, _ = await typed("read", "jobs", '["?", 1]', "--durable", "--url", url, "--json")
        assert code == 0 and json.loads(out)["tuple"] == ["b'bytes'", 1]
        parts = await bus.space("parts", kind="partitioned", copies=2, key=1)
        how = ("--kind", "partitioned", "--copies", "2", "--key", "1", "--url", url)
        assert (await typed("write", "parts", '["part", 1]', *how))[0] == 0
        assert await parts.take(("part", int), timeout=30) == ("part", 1)
        watching = asyncio.create_task(typed("watch", "parts", '["part", "?"]', "--count", "1", "--json", *how))
        states = parts._way.member.server.states
        await eventually(lambda: sum(len(one.watches.known) for one in states.values()) == 64, "", 60)
        await parts.write(("part", 2))
        code, out, _ = await watching
        assert code == 0 and json.loads(out) == {"sequence": 1, "tuple": ["part", 2], "missed": 0, "gap": False}
        await eventually(lambda: not any(one.watches.known for one in states.values()), "", 60)


def test_bad_input_is_one_sentence(capsys):
    for words, said in (
        (["write", "jobs", "nonsense"], "is no JSON"),
        (["write", "jobs", '{"a": 1}'], "is no array"),
    ):
        assert app.run(["space", *words]) == 2
        told = capsys.readouterr().err
        assert said in told and told.count("\n") == 1
