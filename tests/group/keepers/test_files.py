"""Keepers on real files that go bad: whatever bit flips, a keeper with others is put back together, or does not start;
and nothing is deleted."""

import logging
import sqlite3
from contextlib import closing
from random import Random

import pytest

from pluribus.core.errors import Damaged, PluribusError
from pluribus.group.keepers import Settings, follower
from tests.group.keepers.cluster import Cluster
from tests.group.keepers.files import FileStore

SMALL = Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0, snapshot_bytes=8_000, slack_rows=200)


def with_a_file(size, path, settings=SMALL):
    """A cluster whose last keeper has a file."""
    cluster = Cluster(size, settings)
    number = size - 1
    cluster.crash(number)
    cluster.disks[number] = FileStore(cluster.kernel, path)
    cluster.start(number)
    return cluster.found(*range(size))


def written(cluster, count, size=200):
    for number in range(count):
        cluster.write(b"%06d" % number * (size // 6))


def stopped(cluster, path):
    """The last keeper is stopped; its file as one."""
    number = len(cluster.disks) - 1
    cluster.crash(number)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return number


def flip(path, at, bit):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def flip_a_rowid(path, position):
    """One bit of the key of a row, in the page that holds it: rows beside it are not found any more."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT at FROM rows ORDER BY at LIMIT 1 OFFSET ?", (position,)).fetchone()[0]
        before = database.execute("SELECT COUNT(*) FROM rows WHERE at < ?", (found,)).fetchone()[0]
        assert before == position
    key = _varint(found)
    content = path.read_bytes()
    places = [at for at in range(len(content)) if content.startswith(key, at)]
    for at in places:
        flip(path, at + 2, 5)


def _varint(number):
    some = [number & 0x7F]
    while number := number >> 7:
        some.append(0x80 | (number & 0x7F))
    return bytes(reversed(some))


def test_a_keeper_whose_rows_cannot_be_found_sets_its_file_aside_and_is_put_back(tmp_path):
    path = tmp_path / "kept.db"
    cluster = with_a_file(3, path, Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0))
    written(cluster, 300)
    state = cluster.settled()
    number = stopped(cluster, path)
    flip_a_rowid(path, 3)
    cluster.disks[number].open()
    missing = list(cluster.disks[number].read("log/log", 0, 999)).count(None)
    assert missing > 20, "one bit hides many rows"
    before = path.read_bytes()
    name = cluster.start(number).id
    cluster.until(lambda: cluster.keepers[number].whole and cluster.states[number] == state)
    assert cluster.keepers[number].id == name
    assert None not in cluster.disks[number].read("log/log", 0, 999)
    aside = tmp_path / "kept.db-broken-1"
    assert len(aside.read_bytes()) >= len(before), "it is there still"
    assert any("set its store aside" in report for report in cluster.reports)
    cluster.write(b"more")
    cluster.settled()
    cluster.restart_file(number)
    assert cluster.settled()[-1] == b"more"


def test_it_tells_how_far_it_is(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(follower, "PROGRESS_ROWS_MIN", 100)
    caplog.set_level(logging.INFO, "pluribus")
    cluster = with_a_file(3, tmp_path / "kept.db", Settings(heartbeat_s=0.05, election_s=0.3, words_bytes=2_000))
    written(cluster, 200)
    number = stopped(cluster, tmp_path / "kept.db")
    flip_a_rowid(tmp_path / "kept.db", 3)
    cluster.disks[number].open()
    cluster.start(number)
    cluster.settled()
    assert sum("rows again" in line for line in caplog.messages) >= 5


def test_a_keeper_alone_says_so_and_leaves_its_file_where_it_is(tmp_path):
    path = tmp_path / "kept.db"
    cluster = with_a_file(1, path, Settings(heartbeat_s=0.05, election_s=0.3, submit_s=2.0))
    written(cluster, 300)
    number = stopped(cluster, path)
    flip_a_rowid(path, 3)
    cluster.disks[number].open()
    cluster.start(number)
    answers = cluster.submit(number, b"x")
    cluster.until(lambda: answers)
    words = str(answers[0][1])
    assert words.startswith("the only keeper of 'log' cannot go on: its log is damaged (rows ")
    assert "pluribus keepers restore" in words
    assert not list(tmp_path.glob("*broken*"))


@pytest.mark.parametrize("seeds", [range(6), range(6, 12), (1_030, 1_047, 1_050, 1_071)])
def test_whatever_bit_flips_a_keeper_is_whole_again_or_says_why_not(tmp_path, seeds):
    """Files with a few flipped bits each; the last ones have failed."""
    outcomes = []
    for seed in seeds:
        random = Random(seed)
        path = tmp_path / f"{seed}.db"
        cluster = with_a_file(3, path)
        written(cluster, 60, size=random.choice((60, 200, 9_000)))
        state = cluster.settled()
        number = stopped(cluster, path)
        size = path.stat().st_size
        for _ in range(random.choice((1, 1, 3, 30))):
            flip(path, random.randrange(size), random.randrange(8))
        try:
            cluster.disks[number].open()
            cluster.start(number)
        except PluribusError:
            outcomes.append("refused")
            continue
        cluster.until(lambda: cluster.keepers[number].whole and cluster.states[number] == state)  # noqa: B023
        cluster.write(b"more")
        assert cluster.settled()[-1] == b"more"
        outcomes.append("whole")
        cluster.disks[number].crash()
    assert outcomes.count("whole") >= 3


def test_who_it_is_comes_from_both_copies_or_not_at_all(tmp_path):
    cluster = with_a_file(3, tmp_path / "kept.db")
    written(cluster, 3)
    number = stopped(cluster, tmp_path / "kept.db")
    with closing(sqlite3.connect(tmp_path / "kept.db")) as database:
        database.execute("UPDATE keys SET value = x'00' WHERE key LIKE '%meta%'")
        database.commit()
    cluster.disks[number].open()
    with pytest.raises(Damaged, match="give it a new store"):
        cluster.start(number)
