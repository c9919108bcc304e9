"""A backbone that is killed at any stage goes on: its report adds up, every answer is there once, tables hold all."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress

import pytest

import pluribus
from pluribus.core.errors import JobFailed
from tests.pipeline import engines
from tests.pipeline.backbone.rooms import put
from tests.pipeline.test_jobs import descendants
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow, pytest.mark.timeout(900)]

CONFIGURATION = """
    name = "counted"
    state = "state"
    tables = "tables"
    rows = 400

    [tiers]
    every = "1 second"

    [[silver]]
    name = "numbers"
    topics = "numbers/#"
    fields = "n bigint"
    late = "30 seconds"
    unique = ["n"]

    [[silver.rules]]
    name = "not 5"
    where = "n <> 5"
    otherwise = "drop"

    [[silver.rules]]
    name = "no sevens"
    where = "n < 700 OR n >= 707"

    [[gold]]
    name = "hundreds"
    of = "numbers"
    kind = "where"
    where = "FLOOR(n / 100) * 100 = n"
    topic = "hundreds"

    [[gold]]
    name = "sums"
    of = "numbers"
    kind = "windows"
    width = "10 seconds"
    topic = "sums"
    values = { sum = "sum(n)", count = "count(*)" }
"""


def numbers(start, stop):
    """Ten a second."""
    return [(n / 10, {"n": n}) for n in range(start, stop)]


class Killed(Exception):
    """In the place of a kill -9: nothing behind this line is done."""


@contextmanager
def dying(monkeypatch, owner, name, *, after=0, behind=False):
    """The call of a method after some kills the driver: before it is done, or behind it."""
    done, left = getattr(owner, name), [after]

    def once(*values, **named):
        left[0] -= 1
        if left[0] == -1 and not behind:
            raise Killed(name)
        answer = done(*values, **named)
        if left[0] == -1:
            raise Killed(name)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, once)
        yield


def checked(bus, spark, configuration, wanted):
    """Everything that must hold in the end. ``wanted`` are the numbers that were published."""
    from pluribus.pipeline.backbone.running import Backbone

    found = Backbone(spark, configuration).run(once=True)["total"]
    good = [n for n in wanted if n != 5 and not 700 <= n < 707]
    dead = [n for n in wanted if 700 <= n < 707]
    assert found == {
        "read": len(wanted) + 3, "good": len(good), "dead": len(dead), "dropped": 1, "late": 0, "duplicate": 3,
        "lost": 0, "adds_up": True,
    }  # fmt: skip

    def bodies(topic):
        return [event.body for event in bus.log(topic).read(max_bytes=1 << 30).events()]

    assert sorted(body["n"] for body in bodies("counted/silver/numbers/a")) == good
    assert sorted(body["n"] for body in bodies("counted/dead/numbers/a")) == dead
    assert sorted(body["n"] for body in bodies("hundreds")) == [n for n in good if n % 100 == 0]
    sums = [(body["sum"], body["count"]) for body in bodies("sums")]
    oracle = [[n for n in good if at <= n < at + 100] for at in range(0, max(wanted), 100)]
    assert set(sums) <= {(sum(some), len(some)) for some in oracle}
    assert len(sums) == len(set(sums)) >= len(oracle) - 5
    tiers = Backbone(spark, configuration).tiers

    def rows(table):
        return spark.read.parquet(*(table.files.under(path) for path in table.snapshot()))

    assert rows(tiers.bronze).count() == len(wanted) + 3
    assert sorted(row["n"] for row in rows(tiers.silver["numbers"]).select("n").collect()) == good
    assert sorted(row["n"] for row in rows(tiers.gold["hundreds"]).select("n").collect()) == [
        n for n in good if n % 100 == 0
    ]
    for table in tiers.all().values():
        assert not [found for found in table.files.list() if found.path.startswith("_staging")]


def test_killed_at_every_step_of_a_batch(spark, tmp_path, monkeypatch):
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.intake import Intake
    from pluribus.pipeline.backbone.report import Report
    from pluribus.pipeline.backbone.running import Backbone
    from pluribus.pipeline.files import LocalFiles
    from pluribus.pipeline.landing import Landing

    path = tmp_path / "counted.toml"
    path.write_text(CONFIGURATION)
    steps = [
        (Intake, "_counted", {}),
        (Report, "prepare", {"behind": True}),
        (Intake, "_publish", {"behind": True}),
        (Report, "commit", {"behind": True}),
        (Landing, "_commit", {"after": 1}),
        (Landing, "_do", {}),
        (LocalFiles, "move", {"after": 4}),
    ]
    with pluribus.sync.connect("inproc://backbone-steps", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        configuration = load(path, url_of(bus))
        put(configuration.url, "numbers/a", 2, 1, numbers(1, 4))  # will be there twice
        for number, (owner, name, how) in enumerate(steps):
            put(configuration.url, "numbers/a", 1, number * 150 + 1, numbers(number * 150, number * 150 + 150))
            with dying(monkeypatch, owner, name, **how), pytest.raises(JobFailed):
                Backbone(spark, configuration).run(once=True)
        checked(bus, spark, configuration, range(150 * len(steps)))


@contextmanager
def driver(path, url):
    command = [
        sys.executable,
        "-m",
        "pluribus",
        "pipeline",
        "backbone",
        str(path),
        "--url",
        url,
        "--master",
        "local[2]",
    ]
    process = subprocess.Popen(
        [*command, "--json"],
        env=engines.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        everybody = [process.pid, *descendants(process.pid)]
        for one in everybody:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        process.wait()
        process.stderr.close()


def killed_at(mark, path, url):
    """Whether a driver told this, and was killed then. On a machine that is overloaded Spark gives up by itself now and
    then, as it waits for its own workers for ten seconds only: which is a kill like any other."""
    told = []
    with driver(path, url) as process:
        while not (told and told[-1].startswith(mark)):
            told.append(process.stderr.readline())
            if not told[-1]:
                assert any("Python worker failed to connect back" in line for line in told), "".join(told)[-3000:]
                return False
    return True


def test_a_real_driver_is_killed_in_mid_stream_and_another_goes_on(spark, tmp_path):
    from pluribus.pipeline.backbone.configuration import load

    path = tmp_path / "counted.toml"
    path.write_text(CONFIGURATION)
    with pluribus.sync.connect("inproc://backbone-kills", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        url = url_of(bus)
        put(url, "numbers/a", 2, 1, numbers(1, 4))
        published = [0]
        stopping = threading.Event()

        def publish():
            """A hundred more, again and again."""
            while not stopping.wait(0.2) and published[0] < 6_000:
                first = published[0]
                put(url, "numbers/a", 1, first + 1, numbers(first, first + 100))
                published[0] += 100

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            for mark in ("intake batch 1:", "tiers batch"):
                while not killed_at(mark, path, url):
                    continue
        finally:
            stopping.set()
            publisher.join()
        checked(bus, spark, load(path, url), range(published[0]))
