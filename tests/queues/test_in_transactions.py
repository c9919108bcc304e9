"""What a queue answers to transactions that settle messages: all of them, or none."""

from pluribus.group.host.demand import UNLIMITED
from pluribus.group.host.machine import Refusal
from pluribus.queues import words
from pluribus.queues.machine import LATE
from pluribus.queues.words import NACK, Attach, Keep, Settle
from tests.queues.ground import Bench, Sender

S = 1_000_000


def test_each_message_of_a_stretch_must_be_held_in_the_delivery_that_is_meant():
    """The second of two came back meanwhile, and is held by the same consumer once more: it is another's to settle."""
    bench, sender = Bench(), Sender()
    bench.apply(sender.pack([b"a", b"b"]))
    epoch = bench.apply(Attach(1, 1, 5 * S)).number
    bench.apply(Settle(1, epoch, serial=1, things_max=10, bytes_max=1 << 20, want=UNLIMITED))
    bench.apply(Settle(1, epoch, [], [(1, NACK, 0, "")]))
    held = bench.queue.demands.consumers[1].held
    assert {thing: one.delivery for thing, one in held.items()} == {0: 1, 1: 2}
    for late in (Settle(1, epoch, [(0, 2)], deliveries=[1]), Keep(7, 1, epoch, [(0, 2)], [1])):
        found = bench.queue.prepare(50, [0], [words.encode(late)])
        assert isinstance(found, Refusal) and found.reason == LATE
    right = Settle(1, epoch, [(0, 1), (1, 1)], deliveries=[1, 2])
    bench.live[50] = len(words.encode(right))
    bench.queue.commit(bench.queue.prepare(50, [0], [words.encode(right)]))
    assert not bench.queue.messages.count
