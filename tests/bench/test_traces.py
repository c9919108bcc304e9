"""The trace that conformance is measured with keeps every promise, and is as large as it says."""

import pyarrow.parquet as parquet

from pluribus.bench import traces
from pluribus.bench.traces import GROUPS, MEMBERS, write_trace
from pluribus.sim.checkers.wholeness import all_is_read
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.scenarios.groups import GROUPS as SCENARIO


def history_of(path) -> History:
    history = History()
    for row in parquet.read_table(path).to_pylist():
        parent = None if row["parent_sender"] is None else (row["parent_sender"], row["parent_number"])
        history.add(
            Happening(
                row["at"],
                row["member"],
                row["what"],
                row["group"],
                (row["sender"], row["number"]),
                str(row["digest"]).encode(),
                tuple(row["members"]),
                (row["lineage"], row["epoch"]),
                parent,
                row["orphan"],
                row["promises"],
            )
        )
    return history


def test_checkers_find_nothing_in_it_and_much_to_check(tmp_path, monkeypatch):
    each = 10
    for name, value in (("ROUNDS_A_VIEW", 8), ("EACH", each), ("ROUND", each * MEMBERS)):
        monkeypatch.setattr(traces, name, value)
    rounds = 4 * len(GROUPS)  # two views, in which each group has two rounds
    made = write_trace(tmp_path, rounds * each * MEMBERS * MEMBERS)
    history = history_of(tmp_path)
    assert made == rounds * each * MEMBERS * MEMBERS == sum(1 for _ in history.of("deliver"))
    # It tells what came up to the members' groups, and not what their programs read.
    checks = {name: check(history) for name, check in SCENARIO.checkers.items() if check is not all_is_read}
    assert all(checks[name] > 0 for name in ("integrity", "fifo", "causal", "semantic", "safe", "view_agreement"))
