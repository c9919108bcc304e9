"""The simulated disk against an oracle: what was acknowledged is there, what was not may vanish from the end, a write
is there whole or not at all, and what was damaged is known to be."""

from collections import Counter
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pluribus.core.errors import BadInput, Damaged, Unavailable
from pluribus.core.ports import Append, Bounds, Cut, Put, Trim
from pluribus.sim.machinery.disk import SimStore
from pluribus.sim.machinery.kernel import Kernel

LOGS = ("x", "y")
KEYS = ("k", "m")
EVERYTHING = 1 << 30
rows_of_a_write = st.lists(st.binary(max_size=6), min_size=1, max_size=4)


class DiskAgainstOracle(RuleBasedStateMachine):
    """The oracle knows what was written where, how much of each log must survive, and what a key may hold."""

    @initialize(seed=st.integers(0, 2**32))
    def open(self, seed):
        self.kernel = Kernel()
        self.faults: Counter[str] = Counter()
        self.disk = SimStore(self.kernel, Random(seed), self.faults)
        self.written: dict[str, list[bytes]] = {log: [] for log in LOGS}
        self.durable = dict.fromkeys(LOGS, 0)
        self.values: dict[str, list[bytes | None]] = {key: [None] for key in KEYS}
        self.submitted = 0
        self.lost = 0
        self.completed: list[int] = []

    def read(self) -> dict[str, list[bytes | None]]:
        return {log: list(self.disk.read(log, 0, EVERYTHING)) for log in LOGS}

    UNKNOWN = object()

    def value(self, key):
        try:
            return self.disk.get(key)
        except Damaged:
            assert self.faults["bit_flip"]
            return self.UNKNOWN

    def done(self, then):
        number, self.submitted = self.submitted, self.submitted + 1

        def done(error):
            assert error is None
            self.completed.append(number)
            then()

        return done

    @rule(log=st.sampled_from(LOGS), rows=rows_of_a_write)
    def append(self, log, rows):
        self.written[log] += rows
        end = len(self.written[log])

        def acknowledged():
            self.durable[log] = max(self.durable[log], end)

        self.disk.append(log, rows, self.done(acknowledged))

    @rule(key=st.sampled_from(KEYS), value=st.binary(max_size=4))
    def put(self, key, value):
        """``values`` is what a crash may leave: what was acknowledged last, or anything that was put after it."""
        entry = (value,)
        self.values[key].append(entry)

        def acknowledged():
            del self.values[key][: next(at for at, one in enumerate(self.values[key]) if one is entry)]

        self.disk.put(key, value, self.done(acknowledged))
        assert self.disk.get(key) == value, "a read sees what was submitted before it"

    @rule(seconds=st.sampled_from([0.001, 0.004, 0.1]))
    def wait(self, seconds):
        self.kernel.run(self.kernel.now + seconds)

    @rule(log=st.sampled_from(LOGS))
    def be_full_for_a_moment(self, log):
        refused = []
        self.disk.full = True
        self.disk.append(log, [b"row"], refused.append)
        self.disk.put("k", b"value", refused.append)
        self.disk.full = False
        self.kernel.run(self.kernel.now + 1.0)
        assert [type(error) for error in refused] == [Unavailable] * 2

    @rule()
    def crash(self):
        before = self.read()
        lost = self.faults["unsynced_lost"]
        self.disk.crash()
        for log, after in self.read().items():
            old, durable = before[log], self.durable[log]
            assert durable <= len(after) <= len(old)
            assert after == old[: len(after)], "what is left is what was there"
            if len(after) < len(old):
                assert self.faults["unsynced_lost"] > lost
            del self.written[log][len(after) :]
            self.durable[log] = len(after)
        for key, possible in self.values.items():
            value = self.value(key)
            if value is not self.UNKNOWN:
                assert value in [entry and entry[0] for entry in possible]
                self.values[key] = [None if value is None else (value,)]
        self.submitted = 0
        self.completed.clear()  # what was under way is never heard of again

    @rule()
    def flip(self):
        before = self.read() | {key: [self.value(key)] for key in KEYS}
        stored = any(any(row is not None for row in rows) for rows in before.values())
        assert self.disk.flip() or not stored
        after = self.read() | {key: [self.value(key)] for key in KEYS}
        changed = [(name, at) for name in before for at, row in enumerate(before[name]) if after[name][at] != row]
        assert len(changed) <= 1

    @rule()
    def lose_the_end(self):
        before = self.read()
        assert self.disk.lose_tail() or not any(any(rows) for rows in before.values())
        for log, after in self.read().items():
            whole = [at for at, row in enumerate(after) if row != before[log][at]]
            assert whole == [] or whole[-1] == max(at for at, row in enumerate(before[log]) if row is not None)
            self.lost += len(whole)

    @invariant()
    def a_row_is_what_was_written_or_none(self):
        damaged = 0
        for log, rows in self.read().items():
            assert len(rows) == len(self.written[log]) == self.disk.end(log)
            for row, written in zip(rows, self.written[log], strict=True):
                assert row is None or row == written
                damaged += row is None
            assert self.disk.read(log, 1, 3) == rows[1:3]
        assert damaged <= self.faults["bit_flip"] + self.lost

    @invariant()
    def completions_come_in_the_order_of_submission(self):
        assert self.completed == sorted(self.completed)


TestDisk = DiskAgainstOracle.TestCase
TestDisk.settings = settings(max_examples=150, stateful_step_count=30)


def disk(seed: int = 1) -> tuple[Kernel, SimStore, Counter[str]]:
    kernel, faults = Kernel(), Counter()
    return kernel, SimStore(kernel, Random(seed), faults), faults


def test_nothing_is_acknowledged_before_the_disk_had_time():
    kernel, store, _ = disk()
    done = []
    store.append("log", [b"1"], done.append)
    kernel.run(0.002)
    assert done == []
    kernel.run(0.01)
    assert done == [None]


def test_a_crash_before_the_completion_is_never_told_as_done():
    kernel, store, _ = disk()
    done = []
    store.append("log", [b"1"], done.append)
    store.crash()
    kernel.run(1.0)
    assert done == []


def test_of_two_puts_the_later_one_stays():
    for seed in range(50):
        kernel, store, _ = disk(seed)
        store.put("key", b"first", lambda error: None)
        store.put("key", b"second", lambda error: None)
        kernel.run(1.0)
        assert store.get("key") == b"second"


def test_a_crash_during_a_put_leaves_the_old_value_or_the_new_one():
    left = Counter()
    for seed in range(100):
        kernel, store, _ = disk(seed)
        store.put("key", b"old", lambda error: None)
        kernel.run(1.0)
        store.put("key", b"new", lambda error: None)
        store.crash()
        left[store.get("key")] += 1
    assert set(left) == {b"old", b"new"}


def test_crashes_lose_and_tear_and_keep_by_chance():
    faults: Counter[str] = Counter()
    kept = Counter()
    for seed in range(200):
        _, store, struck = disk(seed)
        store.append("log", [b"row"] * 4, lambda error: None)
        store.append("log", [b"row"], lambda error: None)
        store.crash()
        faults += struck
        kept[store.end("log")] += 1
    assert set(kept) == {0, 4, 5}, "a write survives or not"
    assert 0 < faults["torn_write"] < faults["unsynced_lost"] < 200


@pytest.mark.parametrize("rows", [[b""], [b"x" * 100], [b"", b"y"]])
def test_a_flipped_bit_is_found_wherever_it_strikes(rows):
    for seed in range(100):
        kernel, store, faults = disk(seed)
        store.append("log", rows, lambda error: None)
        kernel.run(1.0)
        assert store.flip()
        assert faults["bit_flip"] == 1
        assert list(store.read("log", 0, 9)).count(None) == 1


def test_a_flipped_bit_of_a_value_is_told_from_a_value_that_was_never_put():
    kernel, store, _ = disk()
    store.put("key", b"value", lambda error: None)
    kernel.run(1.0)
    assert store.flip()
    with pytest.raises(Damaged):
        store.get("key")
    assert store.get("other") is None


def test_a_log_that_lost_its_end_still_knows_where_it_was():
    kernel, store, _ = disk()
    store.append("log", [b"%d" % number for number in range(20)], lambda error: None)
    kernel.run(1.0)
    assert store.lose_tail()
    assert store.bounds("log") == Bounds(0, 20)
    rows = store.read("log", 0, 20)
    assert rows[-1] is None and rows[0] == b"0"


def test_a_store_that_lost_the_end_of_its_journal_is_an_older_one_and_knows():
    kernel, store, _ = disk()
    for number in range(20):
        store.write([Append("log", [b"%d" % number]), Put("key", b"%d" % number)], lambda error: None)
        kernel.run(kernel.now + 0.1)
    store.write([Append("log", [b"never"])], lambda error: None)
    store.crash()
    assert store.lose_commits() and store.damage()
    bounds = store.bounds("log")
    assert 12 <= bounds.end <= 20 and not bounds.sure
    assert store.get("key") == b"%d" % (bounds.end - 1), "all of a commit, or nothing"
    store.put("key", b"on", lambda error: None)
    kernel.run(kernel.now + 0.1)
    store.crash()
    assert store.bounds("log") == Bounds(0, bounds.end) and not store.damage()


def test_a_crash_keeps_a_transaction_whole_or_not_at_all():
    ends = Counter()
    for seed in range(100):
        kernel, store, _ = disk(seed)
        store.write([Append("log", [b"0", b"1"]), Put("key", b"1")], lambda error: None)
        kernel.run(1.0)
        store.write([Cut("log", 1), Append("log", [b"new"]), Put("key", b"2")], lambda error: None)
        store.write([Trim("log", 2), Append("log", [b"next"], at=2), Put("key", b"3")], lambda error: None)
        store.crash()
        found = (store.bounds("log"), tuple(store.read("log", 0, 9)), store.get("key"))
        ends[found] += 1
    assert set(ends) == {
        (Bounds(0, 2), (b"0", b"1"), b"1"),
        (Bounds(0, 2), (b"0", b"new"), b"2"),
        (Bounds(2, 3), (b"next",), b"3"),
    }


def test_what_does_not_fit_is_told_in_its_turn_and_leaves_nothing():
    kernel, store, _ = disk()
    done = []
    store.append("log", [b"0"], done.append)
    store.write([Put("key", b"x"), Append("log", [b"7"], at=7)], done.append)
    store.append("log", [b"1"], done.append)
    kernel.run(1.0)
    assert [type(error) for error in done] == [type(None), BadInput, type(None)]
    assert store.get("key") is None
    assert list(store.read("log", 0, 9)) == [b"0", b"1"]
