"""Keepers as processes, looked after with ``pluribus keepers``: every operation of the page in docs/durable.md."""

import io
import json
import sqlite3
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from pluribus.cli import app
from tests.group.keepers.test_files import flip_a_rowid
from tests.real.cluster import WITHIN_S, eventually
from tests.real.processes import Processes, processes
from tests.real.test_keepers import check_publishers

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]


def run(*arguments: str) -> tuple[int, str, str]:
    """In this process: an interpreter each would take longer than what is asked."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = app.run(arguments)
    return code, out.getvalue(), err.getvalue()


def tend(found: Processes, *arguments: str, client: bool = False) -> dict:
    """What ``pluribus keepers`` answers."""
    url = found.url if client else f"multicast://{found.bus}"
    code, out, err = run("keepers", *arguments, "--url", url, "--json")
    assert code == 0 or (arguments[0] == "ls" and code == 1), err
    return json.loads(out)


def standing(found: Processes, **options: bool) -> dict[str, dict]:
    """By member, or by number if it is not there."""
    return {one["member"] or one["keeper"]: one for one in tend(found, "ls", **options)["keepers"]}


def voters(found: Processes, **options: bool) -> set[str]:
    return {name for name, one in standing(found, **options).items() if one["votes"]}


def leaderless(found: Processes, name: str) -> dict:
    """How a keeper stands that was just started, and that nobody leads."""

    def there() -> dict | None:
        code, out, _ = run("keepers", "ls", "--url", f"multicast://{found.bus}", "--json")
        return next((one for one in json.loads(out)["keepers"] if one["member"] == name), None) if code == 1 else None

    return eventually(there, f"keeper {name} is there, and nobody leads")


def three(found: Processes) -> dict[str, str]:
    """Three voters and somebody who publishes; the keepers' numbers."""
    for name in "abc":
        found.begin(name, "--voters", "3")
    found.wait(*"abc")
    found.start("publish", "writer", "acknowledged")
    found.more("acknowledged")
    return {name: one["keeper"] for name, one in standing(found).items()}


def test_lost_keepers_are_replaced_and_a_dead_one_is_removed(tmp_path: Path):
    with processes(tmp_path) as found:
        numbers = three(found)
        for lost, new in (("c", "d"), ("b", "e")):  # twice, so that only one of the first three is left
            found.kill(lost)
            for file in tmp_path.glob(f"{lost}.db*"):
                file.unlink()
            found.keep(new)
            tend(found, "replace", numbers[lost], new, client=lost == "b")
            assert numbers[lost] not in voters(found)
            found.more("acknowledged")
        assert voters(found) == set("ade")
        found.kill("writer", "a")
        del found.addresses["a"], found.addresses["b"], found.addresses["c"]
        found.start("publish", "another", "acknowledged")
        found.more("acknowledged")
        tend(found, "remove", numbers["a"], client=True)
        assert voters(found, client=True) == set("de")
        found.more("acknowledged")
        code, _, err = run("keepers", "remove", "nobody", "--url", f"multicast://{found.bus}")
        assert code == 2 and "pluribus: nobody is keeper 'nobody': use one of " in err
        found.kill("another")
        check_publishers(found.log(), found.lines("acknowledged"))


def test_a_keeper_that_learns_is_given_a_vote_and_goes_on_when_the_first_one_is_moved(tmp_path: Path):
    with processes(tmp_path) as found:
        found.keep("a")
        found.begin("b", "--learn")
        found.wait("b")
        found.start("publish", "writer", "acknowledged")
        found.more("acknowledged")
        assert voters(found) == {"a"}
        assert tend(found, "add", "b", client=True) == {"added": "b"}
        assert voters(found) == set("ab")
        tend(found, "remove", "a")
        assert voters(found) == {"b"}
        found.kill("a")
        del found.addresses["a"]
        found.more("acknowledged")
        found.kill("writer")
        check_publishers(found.log(), found.lines("acknowledged"))


def test_a_file_that_is_gone_and_one_that_is_broken(tmp_path: Path):
    with processes(tmp_path) as found:
        numbers = three(found)
        found.kill("a")
        (tmp_path / "a.db").unlink()
        found.begin("a")
        assert found.running.pop("a").wait(WITHIN_S) == 2, "it does not begin anew by itself"
        found.begin("a", "--fresh")
        found.wait("a")
        tend(found, "replace", numbers["a"], "a")
        assert voters(found) == set("abc") and standing(found)["a"]["keeper"] != numbers["a"]

        found.kill("b")
        subprocess.run([sys.executable, "-c", CLOSED, str(tmp_path / "b.db")], check=True)
        flip_a_rowid(tmp_path / "b.db", 3)
        found.keep("b")
        eventually(lambda: standing(found)["b"]["health"] == "whole", "it is whole again")
        assert standing(found)["b"]["keeper"] == numbers["b"], "it is the same keeper"
        found.more("acknowledged")
        found.kill("c")
        found.more("acknowledged")
        found.kill("writer")
        check_publishers(found.log(), found.lines("acknowledged"))


CLOSED = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)')"


def test_a_backup_is_restored_as_a_new_keeper_and_goes_on_when_nobody_else_is_left(tmp_path: Path):
    with processes(tmp_path) as found:
        numbers = three(found)
        code, out, _ = run("keepers", "backup", str(tmp_path / "a.db"), str(tmp_path / "copy"), "--json")
        assert code == 0 and json.loads(out)["keeper"] == numbers["a"]
        code, _, err = run("keep", "--store", str(tmp_path / "copy"), "--url", f"multicast://{found.bus}")
        assert code == 2 and "is a backup: `pluribus keepers restore`" in err
        found.more("acknowledged")
        code, out, _ = run("keepers", "restore", str(tmp_path / "copy"), str(tmp_path / "d.db"), "--json")
        restored = json.loads(out)
        assert code == 0 and restored["keeper"] not in numbers.values() and restored["missing"] == 0
        found.begin("d", "--learn")
        found.wait("d")
        assert standing(found)["d"]["votes"] is False

        code, _, err = run("keepers", "force", "--yes", "--url", f"multicast://{found.bus}")
        assert code == 2 and "leads, so most voters are there" in err
        found.kill("writer")
        eventually(lambda: len({one["applied"] for one in standing(found).values()}) == 1, "all have everything")
        found.kill(*"abc")
        eventually(lambda: not tend(found, "ls")["leads"], "nobody leads")
        forced = tend(found, "force", "--yes")
        assert forced["keeper"] == restored["keeper"]
        for name in "abc":
            del found.addresses[name]
        found.start("publish", "later", "afterwards")
        found.more("afterwards")
        found.kill("later")
        check_publishers(found.log(), [*found.lines("acknowledged"), *found.lines("afterwards")])


def test_the_store_of_the_only_keeper_is_damaged_and_what_can_be_read_of_it_goes_on(tmp_path: Path):
    store = tmp_path / "a.db"
    with processes(tmp_path) as found:
        found.keep("a")
        found.start("publish", "writer", "acknowledged")
        found.more("acknowledged", 1_000)
        found.kill("writer", "a")
        subprocess.run([sys.executable, "-c", CLOSED, str(store)], check=True)
        with closing(sqlite3.connect(store)) as database:
            (rows,) = database.execute("SELECT COUNT(*) FROM rows").fetchone()
        flip_a_rowid(store, rows - 20)
        found.begin("a")
        assert leaderless(found, "a")["health"] != "whole"
        found.kill("a")
        del found.addresses["a"]
        code, out, err = run("keepers", "restore", str(store), str(tmp_path / "d.db"), "--json")
        restored = json.loads(out)
        assert code == 0 and restored["given_up"] >= 20, err
        found.begin("d")
        assert leaderless(found, "d")["keeper"] == restored["keeper"]
        assert tend(found, "force", "--yes")["keeper"] == restored["keeper"]
        found.wait("d")
        kept = found.log()
        assert kept and set(kept) <= {f"writer {number}" for number in range(len(kept))}
        found.start("publish", "later", "afterwards")
        found.more("afterwards")
        found.kill("later")
        check_publishers(found.log(), [*kept, *found.lines("afterwards")])
