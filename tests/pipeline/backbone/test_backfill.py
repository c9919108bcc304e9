"""When a range may be computed again: nothing of it is missing in bronze, and nothing can come in time any more.
Without Spark."""

import pytest

pytest.importorskip("pyspark.sql")

import pluribus
from pluribus.core.errors import BadInput
from pluribus.pipeline.backbone.backfill import _check_complete
from pluribus.pipeline.backbone.configuration import load
from pluribus.pipeline.backbone.report import Entry, Report
from pluribus.pipeline.backbone.tiers import WRITER, Tiers
from pluribus.pipeline.files import files_of
from pluribus.pipeline.landing import Commit
from tests.pipeline.backbone.rooms import COUNTED, NOON_S, put
from tests.pipeline.test_many_topics import url_of


def test_an_event_of_the_range_that_stands_behind_younger_ones_is_waited_for(tmp_path):
    """Bronze ends behind an event of 12:01:40; one of 12:00:50 follows, which the intake found in time."""
    path = tmp_path / "counted.toml"
    path.write_text(COUNTED)
    with pluribus.sync.connect("inproc://gaps", store=":memory:", serve="127.0.0.1:0") as bus:
        configuration = load(path, url_of(bus))
        put(configuration.url, "numbers/a", 1, 1, [(second, {"n": second}) for second in (0, 100, 50, 200)])
        report, tiers = Report(files_of(configuration.state)), Tiers(None, configuration)
        entry = Entry(0, "q", "r", next={"numbers/a": 3}, watermarks_us={"numbers": (NOON_S + 70) * 1_000_000})
        report.prepare(entry)
        report.commit(entry)

        def check(second):
            _check_complete(None, configuration, tiers, (NOON_S + second) * 1_000_000, 0)

        for number, has in enumerate((2, 3)):
            tiers.bronze._commit(Commit(WRITER, number, place={"numbers/a": has}))
            check(40)
            with pytest.raises(BadInput, match="may still come in time: go up to 2026-09-15T12:01:10 at most"):
                check(80)
            if has == 2:
                with pytest.raises(BadInput, match="up to offset 2, and events of this range stand behind it"):
                    check(60)
            else:
                check(60)
