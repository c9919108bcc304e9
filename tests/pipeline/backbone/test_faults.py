"""A backbone that is killed at any stage goes on: its report adds up, every answer is there once, tables hold all."""

import errno
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

import pluribus
from pluribus.core.errors import JobFailed
from tests.pipeline.backbone.rooms import COUNTED, NOON_S, bodies_of, numbers, put, rows_in, verified
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class Killed(Exception):
    """In the place of a kill -9: nothing behind this line is done."""


@contextmanager
def dying(monkeypatch, owner, name, *, after=0, behind=False, error=None):
    """The call of a method after some kills the driver, or fails with an error: before it is done, or behind it."""
    done, left = getattr(owner, name), [after]

    def once(*values, **named):
        left[0] -= 1
        if left[0] == -1 and not behind:
            raise error or Killed(name)
        answer = done(*values, **named)
        if left[0] == -1:
            raise error or Killed(name)
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, once)
        yield


def test_killed_at_every_step_of_a_batch(spark, tmp_path, monkeypatch):
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.intake import Intake
    from pluribus.pipeline.backbone.report import Report
    from pluribus.pipeline.backbone.running import Backbone
    from pluribus.pipeline.files import LocalFiles
    from pluribus.pipeline.landing import Landing

    path = tmp_path / "counted.toml"
    path.write_text(COUNTED)
    steps = [
        (Intake, "_counted", {}),
        (LocalFiles, "write", {"error": OSError(errno.ENOSPC, "No space left on device")}),
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
        wanted = range(150 * len(steps))
        verified(configuration, Backbone(spark, configuration).run(once=True)["total"], wanted)
        resent_and_filled(spark, configuration, monkeypatch)
        silver = rows_in(f"{configuration.tables}/silver/numbers", "n")
        assert silver == [n for n in wanted if n != 5 and not 700 <= n < 707], "and computed again it is the same"


def resent_and_filled(spark, configuration, monkeypatch):
    """Dead events go round once, though the resend is killed behind its commit, and again before it says so; a backfill
    that is killed between two tables is done again."""
    from pluribus.pipeline.backbone import backfill as module
    from pluribus.pipeline.backbone.resending import resend
    from pluribus.pipeline.files import LocalFiles
    from pluribus.runtime.clients.log_client import LogClient

    before = len(bodies_of(configuration.url, "numbers/a"))
    for owner, name in ((LogClient, "commit_batch"), (LocalFiles, "move")):
        with dying(monkeypatch, owner, name, behind=owner is LogClient), pytest.raises(Killed):
            resend(configuration)
    assert resend(configuration) == {"resent": 0, "finished": 7}
    assert resend(configuration) == {"resent": 0, "finished": 0}
    assert len(bodies_of(configuration.url, "numbers/a")) == before + 7
    start, stop = (datetime.fromtimestamp(NOON_S + second, UTC) for second in (0, 20))
    with dying(monkeypatch, module, "_replace", after=2), pytest.raises(Killed):
        module.backfill(spark, configuration, start, stop)
    filled = module.backfill(spark, configuration, start, stop)
    assert filled["adds_up"] and (filled["read"], filled["dropped"], filled["duplicate"]) == (203, 1, 3)
