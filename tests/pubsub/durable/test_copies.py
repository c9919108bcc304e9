"""Copies of stored events: however they are cut and joined, each event is the one that it was."""

from random import Random

import numpy as np
import pytest

from pluribus.core.errors import MalformedFrame
from pluribus.pubsub.durable import copies as module
from pluribus.pubsub.durable.batch import StoredBatch, StoredExtra, checked, pack, pack_columns
from pluribus.pubsub.durable.copies import Opened, Stretch, copies, runs
from pluribus.wire.bodies import BYTES, DATA


def events_of(batch):
    """Naively: identity, sender, time, kind, headers, parent, body of each."""
    extra, ends, bodies = batch.extra, batch.ends.tolist(), bytes(batch.bodies)
    for place, (sequence, time) in enumerate(zip(batch.sequences.tolist(), batch.times.tolist(), strict=True)):
        yield (
            tuple(extra.ids[place]) if extra.ids else (batch.head.session, sequence),
            extra.senders[place] if extra.senders else batch.head.sender,
            time,
            batch.kind,
            extra.headers[place] if extra.headers else None,
            tuple(extra.parents[place]) if extra.parents and extra.parents[place] else None,
            bodies[ends[place] : ends[place + 1]],
        )


def some_batch(random, offset):
    count = random.choice([1, 1, 2, 5, 90, 200])
    even = random.random() < 0.5
    bodies = [random.randbytes(4 if even else random.choice([0, 1, 4, 30])) for _ in range(count)]
    rare = random.random()
    headers = [{"a": "b"} if random.random() < 0.3 else None for _ in bodies] if rare < 0.3 else ()
    parents = [(7, 8) if random.random() < 0.3 else None for _ in bodies] if rare < 0.2 else ()
    ids = [(random.choice([1, 2]), random.choice([5, 6, 7])) for _ in bodies] if 0.1 < rare < 0.4 else ()
    if ids and random.random() < 0.5:
        ids = [(3, 10 + at) for at in range(count)]
    senders = [random.choice([4, 5]) for _ in bodies] if 0.2 < rare < 0.5 else ()
    times = 1_000 if random.random() < 0.5 else [random.randrange(1_000) for _ in bodies]
    kind = random.choice([BYTES, DATA, "shop.Order"])
    packed = pack("raw", 9, offset + 1, 3, kind, times, bodies, headers, parents, None, ids, senders)
    batch = StoredBatch(packed, offset)
    if count > 3 and random.random() < 0.3:
        batch = batch.chosen(sorted(random.sample(range(count), count // 2)))
    return batch


@pytest.mark.parametrize("seed", range(30))
def test_each_copy_is_the_event_under_another_topic(seed, monkeypatch):
    monkeypatch.setattr(module, "EVENTS_MOST", 100)
    monkeypatch.setattr(module, "BYTES_MOST", 300)
    random = Random(seed)
    wanted, expected, offset = [], [], 0
    for _ in range(12):
        batch = some_batch(random, offset)
        offset += random.choice([len(batch), 1_000])
        flags = np.array([random.random() < random.choice([0.02, 0.5, 1.0]) for _ in range(len(batch))])
        wanted += runs(batch, flags)
        expected += [event for event, is_one in zip(events_of(batch), flags, strict=True) if is_one]
    made = list(copies("clean/of it", wanted))
    for packed in made:
        head = checked(packed)
        assert head.events <= 100 and StoredBatch(packed, 0).topic == "clean/of it"
        assert StoredBatch(packed, 0).places is None, "offsets of copies have no holes"
    assert [event for packed in made for event in events_of(StoredBatch(packed, 0))] == expected


def test_identities_are_named_in_the_head_or_in_runs_or_one_by_one():
    batch = StoredBatch(pack("raw", 9, 1, 3, DATA, 5, [b"\x01"] * 1_000), 0)
    flags = np.ones(1_000, bool)
    flags[500] = False
    (long,) = (StoredBatch(one, 0) for one in copies("t", runs(batch, flags)))
    assert len(long) == 999 and 0 < long.head.extra_bytes < 40
    assert long.extra.ids == [(9, at) for at in range(1, 1_001) if at != 501]
    flags[::2] = False
    (short,) = (StoredBatch(one, 0) for one in copies("t", runs(batch, flags)))
    assert short.extra.ids == [(9, at) for at in range(2, 1_001, 2)]
    halves = [StoredBatch(pack("raw", 9, first, 3, DATA, 5, [b"\x01"] * 2), first - 1) for first in range(1, 21, 2)]
    (joined,) = copies("t", [run for half in halves for run in runs(half, np.ones(2, bool))])
    assert StoredBatch(joined, 0).head.first == 1 and not StoredBatch(joined, 0).head.extra_bytes


@pytest.mark.parametrize("runs_of", [[(9, 1, 2)], [(9, 1, 4), (9, 7, -1)], [(9, 1, 1 << 40)]])
def test_runs_that_do_not_add_up_are_refused(runs_of):
    packed = pack_columns("t", 9, 1, 3, DATA, 5, None, b"\x01" * 3, StoredExtra(runs=runs_of), 3)
    with pytest.raises(MalformedFrame, match="a batch of 3 events with identities of"):
        checked(packed)


def test_copies_may_say_something_else_of_their_headers_and_bodies():
    batch = StoredBatch(pack("raw", 9, 1, 3, DATA, 5, [b"\xc1", b"\x01"], [{"a": "b"}, None]), 0)
    opened = Opened(batch)
    made = copies(
        "dead", [Stretch(opened, 0, 1, ({"rule": "body"},), BYTES), Stretch(opened, 1, 2, ({"rule": "other"},))]
    )
    found = [event for packed in made for event in events_of(StoredBatch(packed, 0))]
    assert [(kind, headers) for _, _, _, kind, headers, _, _ in found] == [
        (BYTES, {"rule": "body"}),
        (DATA, {"rule": "other"}),
    ]
