"""A queue that transforms what arrives takes what was made by its chain, whoever sends it, and nothing else."""

import pytest

from pluribus.queues import words
from pluribus.queues.words import AGAIN, DONE, REFUSED, UNLIKE, Configure, Settings
from tests.queues.ground import Bench, Sender

CHAIN = "csv > json"


@pytest.fixture
def bench():
    made = Bench()
    assert made.apply(Configure(Settings(transform=CHAIN, dead_max=3))).status == DONE
    return made


def dead(bench):
    return [(one.thing, one.reason) for one in bench.queue.ask(words.encode(words.Look(dead=True))).found]


def test_only_batches_that_were_made_by_the_chain_are_taken(bench):
    for sender, columns in ((Sender(1), {}), (Sender(2), {"keys": ["k"]}), (Sender(3), {"transformed": "csv > xml"})):
        outcome = bench.apply(sender.pack([b"a"], **columns))
        assert (outcome.status, outcome.reason) == (UNLIKE, CHAIN)
        sender.next = 1
        assert bench.apply(sender.pack([b"a"], transformed=CHAIN)).status == DONE, "nothing was remembered of the other"
    assert bench.queue.ask(words.encode(words.Count())).depth == 3
    assert bench.apply(Configure(Settings(), True)).status == DONE
    assert bench.apply(Sender(4).pack([b"a"], transformed=CHAIN)).status == UNLIKE, "also the other way round"
    assert bench.apply(Sender(5).pack([b"a"])).status == DONE
    bench.again()
    kept = sum(len(rows[0]) for row, rows in bench.rows.items() if bench.live[row])
    assert kept == sum(bench.live.values()), "what was refused is needed no more"


def test_what_could_not_be_transformed_is_a_dead_letter(bench):
    sender = Sender()
    packed = sender.pack(
        [b"good", b"bad", b"worse"], transformed=CHAIN, failures=["", "no CSV", "none at all"], keys=["k", "k", "k"]
    )
    assert bench.apply(packed).number == 0
    assert dead(bench) == [(1, "not transformed: no CSV"), (2, "not transformed: none at all")]
    assert bench.body(1) == b"bad", "as it was sent"
    stats = bench.queue.ask(words.encode(words.Count()))
    assert (stats.depth, stats.ready, stats.dead, stats.sent) == (1, 1, 2, 3)
    assert bench.apply(sender.pack([b"x"], transformed=CHAIN, failures=["late"], delays_us=[5_000_000])).status == DONE
    assert bench.apply(sender.pack([b"y"], transformed=CHAIN, failures=["later"], ttls_us=[5_000_000])).status == DONE
    assert [thing for thing, _ in dead(bench)] == [2, 3, 4], "there is a limit, and times do not count for them"
    bench.now_us += 10_000_000
    bench.ticks()
    assert [thing for thing, _ in dead(bench)] == [2, 3, 4]
    bench.again()


def test_dead_letters_come_back_transformed_and_not_otherwise(bench):
    sender, fixer = Sender(), Sender(8)
    bench.apply(sender.pack([b"one", b"two"], transformed=CHAIN, failures=["why", "why"], keys=["k", "k"]))
    assert bench.apply(words.Redrive(10)).number == 0, "as it was sent nobody wants it"
    wrong = fixer.pack([b"ONE"], transformed="csv > xml")
    assert bench.apply(words.Remake([0], wrong)).status == UNLIKE
    assert bench.apply(words.Remake([0, 1], fixer.pack([b"ONE"], transformed=CHAIN))).status == REFUSED
    assert bench.apply(words.Remake([0], fixer.pack([b"ONE"], transformed=CHAIN, failures=["no"]))).status == REFUSED
    assert bench.apply(words.Remake([0], b"nonsense")).status == REFUSED
    remade = words.Remake([0], fixer.pack([b"ONE"], transformed=CHAIN, keys=["k"]))
    assert bench.apply(remade).number == 1
    assert bench.apply(remade).status == AGAIN, "once"
    assert dead(bench) == [(1, "not transformed: why")] and bench.body(0) == b"ONE"
    bench.again()
    assert bench.body(0) == b"ONE" and bench.queue.ask(words.encode(words.Count())).ready == 1
    moved = bench.queue.forward({bench.row - 1: bench.rows[bench.row - 1]}, {})
    assert [bench.apply(one).status for one in moved] == [DONE] and bench.body(0) == b"ONE", "and is moved like others"
    assert bench.apply(Configure(Settings(), True)).status == DONE
    assert bench.apply(words.Redrive(10)).number == 1, "a queue that does not transform gives it as it was sent"
    assert bench.body(1) == b"two"
    bench.again()


def test_a_transaction_is_refused_too_unless_it_was_promised(bench):
    queue, plain = bench.queue, Sender().pack([b"a"])
    refusal = queue.prepare(50, [0], [plain])
    assert refusal.reason == words.TRANSFORMS + CHAIN
    made = Sender().pack([b"a"], transformed=CHAIN)
    assert queue.prepare(50, [0], [made]).results[0].status == DONE
    promised = queue.prepare(50, [0, 1], [words.encode(words.Resolve(7, True)), plain])
    assert promised.results[1].status == DONE, "it was made by the chain that the queue had when it was prepared"
