"""A queue as a machine: single promises, and all of them at random against a plain list."""

import pytest

from pluribus.filters import parse
from pluribus.filters.packed import packed
from pluribus.group.host.demand import UNLIMITED
from pluribus.group.host.machine import Refusal
from pluribus.queues import words
from pluribus.queues.machine import Queue
from pluribus.queues.words import (
    AGAIN,
    BACK,
    DONE,
    ENDED,
    EXTEND,
    FULL,
    NACK,
    NEXT,
    REFUSED,
    REJECT,
    RELEASE,
    Attach,
    Configure,
    Detach,
    Offer,
    Pause,
    Purge,
    Redrive,
    Settings,
    Settle,
)

from .ground import Bench, Sender

S = 1_000_000


def consumer(bench, number=1, credit=10, want=UNLIMITED, where="", exclusive=False):
    selector = packed(parse(where)) if where else b""
    epoch = bench.apply(Attach(number, number, 5 * S, selector, exclusive)).number
    assert bench.apply(Settle(number, epoch, serial=1, things_max=credit, bytes_max=1 << 20, want=want)).status == DONE
    return epoch


def test_a_message_goes_to_one_consumer_and_never_comes_again():
    bench, sender = Bench(), Sender()
    consumer(bench, 1)
    consumer(bench, 2)
    assert bench.apply(sender.pack([b"a", b"bb"])).status == DONE
    assert bench.news() == [(1, 0, 1), (2, 1, 1)]
    assert bench.body(0) == b"a" and bench.body(1) == b"bb"
    assert bench.apply(Settle(1, bench.epoch(1), [(0, 1)])).lost == []
    assert bench.apply(Settle(1, bench.epoch(1), [(0, 2)])).lost == [0, 1], (
        "one is settled already, the other is another's"
    )
    assert bench.apply(Settle(2, bench.epoch(2), [(1, 1)])).lost == []
    bench.queue.validate()
    assert not bench.queue.messages.count and not sum(bench.live.values()), "nothing of the log is needed any more"


def test_what_is_sent_again_is_there_once_and_a_gap_is_refused():
    bench, sender = Bench(), Sender()
    first, second = sender.pack([b"a"]), sender.pack([b"b"])
    assert bench.apply(second).status == NEXT
    assert bench.apply(first).status == DONE
    assert bench.apply(first).status == AGAIN
    assert bench.apply(second).number == 1
    assert bench.queue.messages.count == 2


def test_a_plain_batch_is_a_run_that_costs_bits():
    bench, sender = Bench(), Sender()
    for _ in range(100):
        bench.apply(sender.pack([b"x" * 100] * 100))
    assert len(bench.queue.messages.segments) == 100 and bench.queue.messages.count == 10_000
    assert sum(len(data) for name, data in bench.parts() if name.startswith("m/")) < 10_000
    consumer(bench, 1, credit=150)
    assert [thing for _, thing, _ in bench.news()] == list(range(150))
    bench.apply(Settle(1, bench.epoch(1), [(0, 150)]))
    assert [thing for _, thing, _ in bench.news()] == list(range(150, 300)), "the credit comes back"
    assert len(bench.queue.messages.segments) == 99
    bench.again()


def test_priorities_first_and_first_in_first_out_within_one():
    bench, sender = Bench(), Sender()
    bench.apply(sender.pack([b"%d" % at for at in range(6)], priorities=[4, 9, 0, 9, 4, 5]))
    consumer(bench)
    assert [bench.body(thing) for _, thing, _ in bench.news()] == [b"1", b"3", b"5", b"0", b"4", b"2"]


def test_messages_of_one_key_are_in_order_and_at_one_consumer():
    bench, sender = Bench(), Sender()
    consumer(bench, 1)
    consumer(bench, 2)
    bench.apply(sender.pack([b"a", b"b", b"c"], keys=["k", "k", "other"], priorities=[1, 9, 4]))
    assert sorted(thing for _, thing, _ in bench.news()) == [0, 2]
    bench.queue.validate()
    holder = next(one for one in (1, 2) if 0 in bench.queue.demands.consumers[one].held)
    bench.apply(Settle(holder, bench.epoch(holder), [], [(0, NACK, S, "")]))
    assert bench.news() == [], "its next try blocks the key"
    bench.now_us += 2 * S
    bench.ticks()
    ((who, thing, delivery),) = bench.news()
    assert (thing, delivery) == (0, 2)
    bench.apply(Settle(who, bench.epoch(who), [(0, 1)]))
    assert [thing for _, thing, _ in bench.news()] == [1]


def test_given_back_with_a_growing_wait_and_a_dead_letter_in_the_end():
    bench, sender = Bench(), Sender()
    bench.apply(Configure(Settings(tries_max=3, backoff_us=S, backoff_us_max=10 * S)))
    consumer(bench)
    bench.apply(sender.pack([b"poison"]))
    for delivery, wait in ((1, S), (2, 2 * S)):
        assert bench.news() == [(1, 0, delivery)]
        bench.apply(Settle(1, bench.epoch(1), [], [(0, BACK, 0, "")]))
        bench.now_us += wait - S // 2
        bench.ticks()
        assert bench.news() == []
        bench.now_us += S
        bench.ticks()
    assert bench.news() == [(1, 0, 3)]
    bench.apply(Settle(1, bench.epoch(1), [], [(0, BACK, 0, "")]))
    assert bench.queue.messages.dead and bench.queue.messages.count == 0
    (seen,) = bench.queue.ask(words.encode(words.Look(dead=True))).found
    assert seen.reason == "given back 3 times" and seen.state == "dead"
    assert bench.body(0) == b"poison", "a dead letter has its body"
    assert bench.apply(Redrive(10)).number == 1
    assert bench.news() == [(1, 0, 1)], "untried"


def test_a_consumer_that_dies_and_one_that_leaves():
    bench, sender = Bench(), Sender()
    consumer(bench, 1)
    bench.apply(sender.pack([b"a", b"b"]))
    bench.news()
    bench.expire([1])
    consumer(bench, 2)
    assert bench.news() == [(2, 0, 2), (2, 1, 2)], "a try counts"
    assert bench.apply(Settle(1, bench.epoch(1), [(0, 1)])).status == ENDED
    bench.apply(Detach(2))
    consumer(bench, 3)
    assert bench.news() == [(3, 0, 2), (3, 1, 2)], "what was given back unseen does not"


def test_attaching_again_gives_what_is_held_and_ends_the_older_epoch():
    bench, sender = Bench(), Sender()
    consumer(bench, 1)
    bench.apply(sender.pack([b"a"]))
    answer = bench.apply(Attach(1, 1, 5 * S))
    assert answer.number > bench.epoch(1) and answer.things == [(0, 1)]
    assert bench.apply(Settle(1, bench.epoch(1), [(0, 1)])).status == ENDED
    assert bench.apply(Settle(1, bench.epoch(1, 1), [(0, 1)])).lost == []


def test_a_demand_that_is_taken_back_is_answered_with_what_came():
    bench, sender = Bench(), Sender()
    consumer(bench, 1, want=1)
    bench.apply(sender.pack([b"a", b"b"]))
    answer = bench.apply(Settle(1, bench.epoch(1), serial=2, things_max=1, bytes_max=1, want=0))
    assert answer.things == [(0, 1)]
    assert bench.apply(Settle(1, bench.epoch(1), [(0, 1)], serial=3, things_max=1, bytes_max=1, want=0)).things == []


def test_delay_expiry_and_leases_are_in_the_log_s_time():
    bench, sender = Bench(), Sender()
    bench.apply(Configure(Settings(lease_us=5 * S)))
    consumer(bench, 1)
    bench.apply(sender.pack([b"later", b"short"], delays_us=[2 * S, 3 * S], ttls_us=[0, S]))
    assert bench.news() == [] and bench.queue.messages.delayed == 2
    bench.again()
    bench.now_us += S + 20_000
    bench.ticks()
    assert bench.queue.messages.totals.expired == 1
    bench.now_us += S
    bench.ticks()
    assert bench.news() == [(1, 0, 1)]
    bench.apply(Settle(1, bench.epoch(1), [], [(0, EXTEND, 9 * S, "")]))
    bench.now_us += 6 * S
    bench.ticks()
    assert bench.news() == []
    bench.now_us += 4 * S
    bench.ticks()
    assert bench.news() == [(1, 0, 2)], "it was held for too long"
    bench.queue.validate()
    assert bench.apply(Settle(1, bench.epoch(1), [(0, 1)])).lost == [], "it is the new delivery that is settled"


def test_an_identity_counts_once_within_the_window():
    bench, sender = Bench(), Sender()
    bench.apply(Configure(Settings(window_us=10 * S)))
    bench.apply(sender.pack([b"a", b"a"], ids=["x", "x"]))
    bench.apply(Sender(8).pack([b"a"], ids=["x"]))
    assert bench.queue.messages.count == 1 and bench.queue.messages.totals.duplicates == 2
    bench.again()
    bench.now_us += 11 * S
    bench.apply(sender.pack([b"a"], ids=["x"]))
    assert bench.queue.messages.count == 2
    assert bench.apply(sender.pack([b"a"], ids=["x"])).status == DONE
    assert bench.queue.messages.count == 2


@pytest.mark.parametrize(("policy", "status"), [("wait", FULL), ("refuse", REFUSED), ("dead", DONE)])
def test_a_full_queue(policy, status):
    bench, sender = Bench(), Sender()
    bench.apply(Configure(Settings(count_max=2, policy=policy)))
    assert bench.apply(sender.pack([b"a", b"b"])).status == DONE
    third = sender.pack([b"c"])
    answer = bench.apply(third)
    assert answer.status == status and (status == DONE or "limit" in answer.reason)
    assert len(bench.queue.messages.dead) == (status == DONE)
    consumer(bench, 1, credit=1)
    bench.apply(Settle(1, bench.epoch(1), [(bench.news()[0][1], 1)]))
    assert bench.apply(third).status == (AGAIN if status == DONE else DONE)
    assert bench.apply(Configure(Settings(count_max=3))).status == REFUSED
    assert bench.apply(Configure(Settings(count_max=3), True)).status == DONE


def test_an_exclusive_consumer_is_alone():
    bench = Bench()
    consumer(bench, 1, exclusive=True)
    assert bench.apply(Attach(2, 2, S)).status == REFUSED
    bench.apply(Detach(1))
    consumer(bench, 2)
    assert bench.apply(Attach(3, 3, S, b"", True)).status == REFUSED


def test_a_paused_queue_hands_nothing_out():
    bench, sender = Bench(), Sender()
    bench.apply(Pause(True, 0))
    consumer(bench, 1)
    consumer(bench, 2, where="a = 1")
    bench.apply(sender.pack([b"x", b"y"], properties=[None, {"a": 1}]))
    assert bench.news() == []
    bench.apply(Pause(False, 1))
    assert sorted(bench.news()) == [(1, 0, 1), (2, 1, 1)]


def test_a_late_copy_of_an_operators_command_changes_nothing():
    bench = Bench()
    assert bench.apply(Pause(True, 0)).status == DONE
    assert bench.apply(Pause(True, 0)).status == AGAIN
    assert bench.apply(Pause(False, 1)).status == DONE
    late = bench.apply(Pause(True, 0))
    assert (late.status, late.number) == (NEXT, 2)
    assert not bench.queue.messages.totals.paused
    assert bench.apply(Configure(Settings(count_max=3), True, 2)).status == DONE
    assert bench.apply(Configure(Settings(count_max=4), True, 3)).status == DONE
    late = bench.apply(Configure(Settings(count_max=3), True, 2))
    assert (late.status, late.number) == (NEXT, 4)
    assert bench.queue.messages.settings.count_max == 4


def test_purge_takes_what_nobody_holds():
    bench, sender = Bench(), Sender()
    bench.apply(sender.pack([b"x"] * 100))
    bench.apply(sender.pack([b"k"] * 3, keys=["k"] * 3, delays_us=[0, S, 0]))
    consumer(bench, 1, credit=5)
    assert bench.apply(Purge(1_000)).number == 98
    bench.queue.validate()
    assert bench.queue.messages.count == 5
    bench.apply(Settle(1, bench.epoch(1), [(0, 5)]))
    assert not sum(bench.live.values())


def test_selectors_see_what_comes_and_what_is_there():
    bench, sender = Bench(), Sender()
    bench.apply(sender.pack([b"a", b"b"], properties=[{"region": "us"}, {"region": "eu"}]))
    consumer(bench, 1, where="region = 'eu'", credit=2)
    assert bench.news() == [(1, 1, 1)]
    bench.apply(sender.pack([b"c", b"d", b"e"], properties=[None, {"region": "eu"}, {"region": "eu"}]))
    assert bench.news() == [(1, 3, 1)], "within its credit"
    bench.apply(Settle(1, bench.epoch(1), [], [(1, NACK, 0, ""), (3, RELEASE, 0, "")]))
    assert [thing for _, thing, _ in bench.news()] == [1, 3], "what came back is wanted, too"
    bench.queue.validate()
    assert bench.apply(Attach(5, 5, S, b"nonsense")).status == REFUSED
    assert "NOW" in bench.apply(Attach(5, 5, S, packed(parse("NOW() > a")))).reason


def test_who_takes_any_message_is_given_the_first_also_beside_one_with_a_selector():
    bench, sender = Bench(), Sender()
    consumer(bench, 1, credit=1)
    consumer(bench, 2, where="region = 'eu'", credit=1)
    bench.apply(sender.pack([b"a", b"b", b"c"], properties=[None, None, {"region": "eu"}]))
    assert sorted(bench.news()) == [(1, 0, 1), (2, 2, 1)]
    bench.queue.validate()


def test_a_long_queue_is_searched_outside_of_commands():
    bench, sender = Bench(), Sender()
    for start in range(0, 20_000, 1_000):
        regions = [{"region": "rare" if at == 15_555 else "usual", "n": at} for at in range(start, start + 1_000)]
        bench.apply(sender.pack([b"x"] * 1_000, properties=regions))
    consumer(bench, 1, where="region = 'rare'")
    consumer(bench, 2, where="n > 19997")
    assert bench.news() == [] and bench.queue.busy
    while bench.queue.busy:
        for command in bench.queue.chores():
            assert bench.apply(command).number
    assert sorted(bench.news()) == [(1, 15_555, 1), (2, 19_998, 1), (2, 19_999, 1)]
    bench.apply(Settle(1, bench.epoch(1), [(15_555, 1)]))
    looked = bench.queue.finder.looked
    consumer(bench, 3, where="region = 'rare'")
    while bench.queue.busy:
        bench.queue.chores()
    assert bench.queue.finder.looked - looked < 10, "the property has a list"
    assert bench.apply(Offer(3, bench.epoch(3), [0, 15_555])).number == 0, "a find that is wrong gives nothing"


def test_offers_that_were_lost_are_made_again():
    bench, sender = Bench(), Sender()
    bench.apply(sender.pack([b"x"] * 1_000, properties=[{"n": number} for number in range(1_000)]))
    consumer(bench, 1, where="n = 999")
    while bench.queue.busy:
        bench.queue.chores()  # and the leader loses what it returned
    assert bench.news() == []
    bench.queue.search_again()
    assert bench.queue.busy
    while bench.queue.busy:
        for command in bench.queue.chores():
            bench.apply(command)
    assert bench.news() == [(1, 999, 1)]


def test_a_value_that_many_messages_have_is_looked_up_in_slices():
    bench, sender = Bench(), Sender()
    for _ in range(0, 12_000, 1_000):
        bench.apply(sender.pack([b"x"] * 1_000, properties=[{"region": "eu"}] * 1_000))
    finder = bench.queue.finder

    def found(number, where):
        """What a consumer is given, and the most that one slice looked at."""
        consumer(bench, number, where=where, credit=1)
        most = 0
        while bench.queue.busy:
            before = finder.looked
            for command in bench.queue.chores():
                bench.apply(command)
            most = max(most, finder.looked - before)
        return [thing for _, thing, _ in bench.news()], most

    assert found(1, "region = 'eu'")[0] == [0]
    things, most = found(2, "region = 'eu' AND priority > 4")
    assert things == [] and most <= 4_000, "all of them were looked at, a slice at a time"
    bench.apply(Detach(2))
    assert found(3, "region = 'eu'")[0] == [1]
    bench.apply(Purge(9_000))
    assert found(4, "region = 'eu'")[0] == [9_000], "what is gone is passed over"
    bench.apply(sender.pack([b"x"] * 2, properties=[{"region": "eu"}] * 2, priorities=[4, 9]))
    assert found(5, "region = 'eu'")[0] == [12_001], "the higher priority first"
    bench.queue.validate()


def test_what_stays_is_written_forward():
    bench, sender = Bench(), Sender()
    bench.apply(sender.pack([b"%03d" % at for at in range(100)]))
    bench.apply(sender.pack([b"a", b"bb"], keys=["x", ""]))
    consumer(bench, 1, credit=100)
    bench.apply(Settle(1, bench.epoch(1), [(0, 50), (51, 40)], [(91, REJECT, 0, "no")]))
    for command in bench.queue.forward({row: bench.rows[row] for row in (1, 2)}, {}):
        assert bench.apply(command).status == DONE
    assert not bench.live[1] and not bench.live[2]
    assert bench.body(50) == b"050" and bench.body(91) == b"091" and bench.body(100) == b"a"
    bench.queue.validate()
    bench.again()
    assert bench.apply(Settle(1, bench.epoch(1), [(50, 1), (92, 10)])).lost == []
    assert bench.apply(Purge(1_000, True)).number == 1
    assert not sum(bench.live.values())


def test_a_segment_with_few_left_is_thinned():
    bench, sender = Bench(), Sender()
    for start in range(0, 4_096, 512):
        bench.apply(
            sender.pack([b"%d" % at for at in range(start, start + 512)], priorities=[at % 10 for at in range(512)])
        )
    bench.apply(sender.pack([b"x"] * 40))
    consumer(bench, 1, credit=5_000)
    bench.apply(Settle(1, bench.epoch(1), [(at, 99) for at in range(0, 4_000, 100)]))
    segment = next(iter(bench.queue.messages.segments))
    assert segment.count < 600 and segment.numbers is not None
    bench.queue.validate()
    bench.again()
    assert bench.body(99) == b"99" and bench.body(3_999) == b"3999"
    bench.expire([1])
    bench.queue.validate()


def test_a_transaction_acknowledges_and_sends_or_does_nothing():
    bench, sender = Bench(), Sender()
    consumer(bench, 1)
    bench.apply(sender.pack([b"in"]))
    bench.row += 1
    commands = [words.encode(Settle(1, bench.epoch(1), [(0, 1)])), sender.pack([b"out"] * 40)]
    bench.live[bench.row] += sum(map(len, commands))
    wrong = bench.queue.prepare(bench.row, [0, 1], [words.encode(Settle(1, bench.epoch(1), [(9, 1)])), commands[1]])
    assert isinstance(wrong, Refusal) and "lease" in wrong.reason and bench.queue.messages.count == 1
    twice = bench.queue.prepare(bench.row, [0, 1], [commands[0], commands[0]])
    assert isinstance(twice, Refusal)
    effects = bench.queue.prepare(bench.row, [0, 1], commands)
    assert [one.status for one in effects.results] == [DONE, DONE] and effects.results[1].number == 1
    bench.queue.commit(effects)
    bench.queue.validate()
    assert len([thing for _, thing, _ in bench.news()]) == 10


def test_a_long_body_is_staged():
    bench, sender = Bench(), Sender()
    assert bench.apply(words.Stage(5, 0, b"a" * 1_000)).status == DONE
    assert bench.apply(words.Stage(5, 0, b"a" * 1_000)).status == AGAIN
    assert bench.apply(words.Stage(5, 2, b"c")).status == NEXT
    assert bench.apply(words.Stage(5, 1, b"b" * 1_000)).status == DONE
    assert bench.apply(sender.pack([b""], uploads=[(6, 2)])).status == REFUSED
    assert bench.apply(Sender(9).pack([b""], uploads=[(5, 2)])).status == DONE
    ((_, _, _, _, pieces),) = bench.queue.ask(words.encode(words.Where([0])))
    assert [bench.queue.pieces(bench.rows[row][0])[0][:1] for row, _ in pieces] == [b"a", b"b"]
    bench.again()
    for command in bench.queue.forward({row: bench.rows[row] for row in range(1, bench.row + 1)}, {}):
        assert bench.apply(command).status == DONE
    ((_, _, _, _, moved),) = bench.queue.ask(words.encode(words.Where([0])))
    assert [bench.queue.pieces(bench.rows[row][0])[0][:1] for row, _ in moved] == [b"a", b"b"] and moved != pieces
    consumer(bench, 1)
    assert bench.queue.demands.consumers[1].held_bytes > 2_000, "the pieces are part of its credit"
    (seen,) = bench.queue.ask(words.encode(words.Look())).found
    assert seen.pieces == moved and seen.size > 2_000
    bench.apply(Settle(1, bench.epoch(1), [(0, 1)]))
    assert not sum(bench.live.values())
    bench.apply(words.Stage(7, 0, b"a" * 1_000))
    bench.now_us += 3_600 * S
    bench.ticks()
    assert not bench.queue.messages.uploads and not sum(bench.live.values()), "nobody sent the message"


def test_a_million_messages_in_runs_are_small_and_singles_cost_under_a_hundred_bytes():
    import tracemalloc

    bench, sender = Bench(), Sender()
    commands = [sender.pack([b"x" * 8]) for _ in range(20_000)]
    tracemalloc.start()
    for row, command in enumerate(commands, 1):
        bench.live[row] = len(command)
    before = tracemalloc.get_traced_memory()[0]
    for row, command in enumerate(commands, 1):
        bench.queue.apply(row, 0, command)
    each = (tracemalloc.get_traced_memory()[0] - before) / len(commands)
    tracemalloc.stop()
    assert each < 100, f"{each:.0f} bytes a message"


def test_the_machine_says_what_it_is():
    assert Queue.kind == "queue" and Queue.retains and Queue.transactional
