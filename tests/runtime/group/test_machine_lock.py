"""The lock that the processes of one machine share, and how many founders a bus has."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pluribus
from pluribus.core.errors import BadInput, BadUrl
from pluribus.core.url import parse_url
from pluribus.runtime.bus import BEST_EFFORT, VIEWS
from pluribus.runtime.group.founding import MachineLock, founded_by, founders_from, lock_folder
from tests.harness import eventually, new_bus, on_a_loop

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such locks; there starters listen longer.")


class Engine:
    """As much of one as a lock looks at."""

    name = "fake"
    heard_s = 1.5

    def __init__(self, *places, local=True):
        self.places = tuple((place, 7) for place in places) or (("here", 7),)
        self.local = local


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "pluribus"


def lock(*places, bus="demo", shape="", local=True) -> MachineLock:
    made = MachineLock(bus, Engine(*places, local=local))
    made.shape = shape
    return made


@posix
def test_one_claims_and_others_share_what_nobody_else_can_claim():
    first, second, third = lock(), lock(), lock()
    assert first.claim()
    assert first.claim() and not second.claim()
    assert second.share() and not third.claim()
    first.release()
    assert not third.claim(), "the second still holds it"
    assert not second.claim(), "it shares, and goes on sharing"
    assert not third.claim()
    second.release()
    assert third.claim()
    third.release()


@posix
def test_the_last_one_removes_the_files(folder):
    first, second = lock("a", "b"), lock("b", "c")
    assert first.claim() and second.share()
    assert len(list(folder.iterdir())) == 3
    first.release()
    assert len(list(folder.iterdir())) == 2, "b and c are held"
    second.release()
    assert list(folder.iterdir()) == []
    second.release()


@posix
def test_a_removed_file_is_no_lock(folder):
    """Whoever had opened it before it was removed opens another."""
    first = lock()
    assert first.claim()
    (path,) = folder.iterdir()
    path.unlink()
    second = lock()
    assert second.claim(), "as somebody who removed it wanted"
    assert path.exists()
    second.release()
    first.release()


@posix
@pytest.mark.parametrize(
    ("others", "apart"),
    [
        ({}, False),
        ({"bus": "another"}, True),
        ({"shape": "another"}, True),
    ],
    ids=["the same", "another bus", "another stack"],
)
def test_what_keeps_buses_apart(others, apart):
    first, second = lock(), lock(**others)
    assert first.claim() and second.claim() is apart
    first.release()
    second.release()


@posix
def test_urls_with_one_place_in_common_share_a_lock():
    first, second, third = lock("a", "b"), lock("b", "c"), lock("c")
    assert first.claim()
    assert not second.claim()
    assert third.claim(), "what the second tried has left nothing behind"
    first.release()
    third.release()


@posix
def test_the_kernel_takes_the_lock_from_a_process_that_is_killed():
    program = (
        "import sys; from tests.runtime.group.test_machine_lock import lock\n"
        "held = lock(); assert held.claim(); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        mine = lock()
        assert not mine.claim()
        other.kill()
        other.wait()
        assert mine.claim()
        mine.release()


@posix
def test_a_forked_child_does_not_hold_what_its_parent_held():
    held, reading = lock(), os.pipe()
    assert held.claim()
    child = os.fork()
    if not child:  # lives on until the parent says so
        os.close(reading[1])
        os.read(reading[0], 1)
        os._exit(0)
    try:
        held.release()
        other = lock()
        assert other.claim()
        other.release()
    finally:
        os.close(reading[1])
        os.close(reading[0])
        os.waitpid(child, 0)


@posix
def test_the_lock_decides_on_one_machine_and_elsewhere_a_starter_listens_as_well():
    assert lock().listen_s == 0.0
    assert lock(local=False).listen_s == 1.5


@posix
def test_a_folder_of_somebody_else_is_not_used(folder, tmp_path, caplog):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    with pytest.raises(PermissionError, match="not a folder of this user alone"):
        lock_folder()
    with caplog.at_level(logging.WARNING):
        alone = lock()
        assert alone.listen_s == 1.5, "without a lock a starter listens on loopback too"
        assert alone.claim() and alone.share()
    assert "no lock for bus 'demo'" in caplog.text and len(caplog.records) == 1
    assert list(elsewhere.iterdir()) == []


@posix
def test_a_folder_that_others_can_write_is_not_used(folder):
    folder.mkdir(mode=0o700)
    folder.chmod(0o770)
    with pytest.raises(PermissionError, match="chmod 700"):
        lock_folder()


@posix
def test_a_link_in_the_place_of_the_file_is_not_followed(folder, tmp_path, caplog):
    first = lock()
    assert first.claim()
    (path,) = folder.iterdir()
    first.release()
    path.symlink_to(tmp_path / "victim")
    with caplog.at_level(logging.WARNING):
        assert lock().claim(), "there is no lock to be had"
    assert "no lock for bus" in caplog.text
    assert not (tmp_path / "victim").exists()


@posix
def test_without_a_folder_of_the_session_it_is_in_the_temporary_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert lock_folder() == tmp_path / f"pluribus-{os.getuid()}"


@posix
@on_a_loop
async def test_a_bus_holds_the_lock_from_its_first_primary_until_it_is_closed(folder):
    async with pluribus.connect(new_bus()) as bus:
        await eventually(lambda: bus.primary)
        assert len(list(folder.iterdir())) == 1
    assert list(folder.iterdir()) == []


# How many founders


@pytest.mark.parametrize(
    ("given", "query", "environment", "found"),
    [
        (None, "", "", None),
        (None, "", "3", 3),
        (None, "?founders=2", "3", 2),
        (4, "?founders=2", "3", 4),
    ],
)
def test_founders_are_said_by_the_caller_the_url_or_the_environment(monkeypatch, given, query, environment, found):
    monkeypatch.setenv("PLURIBUS_FOUNDERS", environment)
    assert founders_from(given, parse_url(f"multicast://demo{query}")) == found


@pytest.mark.parametrize("text", ["0", "201", "many", "²"])
def test_a_number_of_founders_that_cannot_be(monkeypatch, text):
    with pytest.raises(BadUrl, match=r"founders=.* is out of range; use 1 to 200"):
        parse_url(f"multicast://demo?founders={text}")
    monkeypatch.setenv("PLURIBUS_FOUNDERS", text)
    with pytest.raises(BadInput, match=r"PLURIBUS_FOUNDERS=.* is out of range: use 1 to 200"):
        founders_from(None, parse_url("multicast://demo"))


def test_a_client_founds_nothing():
    with pytest.raises(BadUrl, match="a client founds nothing"):
        parse_url("client://127.0.0.1:7400/demo?founders=2")


def test_a_stack_is_given_its_founders():
    assert "| membership(founders=3) |" in founded_by(VIEWS, 3, asked=True)
    assert founded_by(VIEWS, None, asked=False) == VIEWS
    assert founded_by(BEST_EFFORT, 3, asked=False) == BEST_EFFORT, "the environment is for every bus"
    with pytest.raises(BadInput, match="needs agreed views"):
        founded_by(BEST_EFFORT, 3, asked=True)
    with pytest.raises(BadInput, match="said twice"):
        founded_by(founded_by(VIEWS, 3, asked=True), 2, asked=True)


@on_a_loop
async def test_members_that_say_different_numbers_understand_each_other(monkeypatch):
    url = new_bus()
    async with pluribus.connect(url, name="one", founders=3) as one, pluribus.connect(f"{url}?founders=2") as two:
        await eventually(lambda: len(one.members) == len(two.members) == 2)
        assert not one.primary and not two.primary
        assert "membership(founders=3)" in one.describe()
        monkeypatch.setenv("PLURIBUS_FOUNDERS", "2")
        async with pluribus.connect(url) as three:
            await eventually(lambda: all(bus.primary for bus in (one, two, three)))


@on_a_loop
async def test_a_number_of_founders_is_checked_before_anything_is_opened():
    with pytest.raises(BadInput, match="founders=0 cannot found a primary: use 1 to 200"):
        await pluribus.connect(new_bus(), founders=0)
    with pytest.raises(BadInput, match="needs agreed views"):
        await pluribus.connect(new_bus(), founders=2, stack="best-effort")
