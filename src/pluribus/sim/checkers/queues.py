"""The total-queue checker: no acknowledged message is lost, none is invented, no settled message is redelivered,
messages of one key are in order, and no two consumers hold a message.

Clients write down ``sending`` and ``sent`` (the number is that of the message in its body, and the place that it got),
``told`` (place and delivery, with the body), ``rejecting``, ``settling`` and ``acknowledged``, ``moved`` and ``stayed``
(of a transaction into another queue). Keepers write down ``given``, ``back`` and ``buried`` as they apply commands (the
number is the place, and the keeper's life), and at the end ``done``: the messages of the other queue.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import msgspec

from ...core.errors import Violation
from ..machinery.history import History

_Sent = tuple[int, str, int, int, str, int]
"""Number, key, delay, time to live, queue, place."""
_Given = tuple[str, int, int, str, int, int]
"""Queue, consumer, delivery, key, how long it was in the queue, tries before."""
_sent = msgspec.msgpack.Decoder(_Sent).decode
_given = msgspec.msgpack.Decoder(_Given).decode


def number_of(body: bytes) -> int:
    """The number of the message of a body; -1 if it belongs to none."""
    whole = body[:14]
    return (
        int(whole[8:]) if whole[:8] == b"message " and whole[8:].isdigit() and body == whole * (len(body) // 14) else -1
    )


def nothing_lost(history: History) -> int:
    """The queue is empty at the end: every message that was acknowledged to its sender was settled by somebody, or
    outlived its time; and what was moved in a transaction is in the other queue, once."""
    checks = 0
    settling = {number_of(h.body) for h in history.of("settling")}
    for h in history.of("sent"):
        checks += 1
        number, _, _, ttl_us, _, _ = _sent(h.body)
        if number not in settling and not ttl_us:
            raise Violation(f"message {number} was acknowledged to its sender, and nobody ever settled it")
    moved = {number_of(h.body) for h in history.of("moved")}
    done: dict[int, Counter[int]] = {}
    for h in history.of("done"):
        done.setdefault(h.id[1], Counter())[number_of(h.body)] += 1
    for keeper, numbers in done.items():
        checks += len(numbers)
        lost = moved - set(numbers)
        if lost:
            raise Violation(f"messages {sorted(lost)[:5]} were moved and are not in the other queue at keeper {keeper}")
        twice = [number for number, times in numbers.items() if times > 1]
        if twice:
            raise Violation(f"messages {twice[:5]} are in the other queue more than once at keeper {keeper}")
    return checks


def nothing_invented(history: History) -> int:
    """Consumers get only bodies that were sent, and each message is at one place only."""
    sending = {h.id[0] for h in history.of("sending")}
    places: dict[int, int] = {}
    checks = 0
    for h in history.of("told"):
        checks += 1
        number = number_of(h.body)
        if number not in sending:
            raise Violation(f"a consumer was given {h.body[:40]!r}, which nobody sent, at {h.at:.3f}")
        if places.setdefault(number, h.id[0]) != h.id[0]:
            raise Violation(f"message {number} is in the queue twice, at {places[number]} and {h.id[0]}")
    return checks


def settled_once(history: History) -> int:
    """What was settled, or moved away, never comes again: no consumer settles it a second time, and none is told of a
    later delivery."""
    ended: dict[int, tuple[str, int]] = {}
    deliveries: dict[int, int] = {}
    redriven = {h.id[0] for h in history.of("rejecting")}
    checks = 0
    for what in ("acknowledged", "moved"):
        for h in history.of(what):
            checks += 1
            thing, delivery = h.id
            if thing in ended:
                raise Violation(f"message {thing} was {ended[thing][0]}, and {what} again at {h.at:.3f}")
            ended[thing] = (what, delivery)
    for h in history.of("told"):
        thing, delivery = h.id
        deliveries[thing] = max(deliveries.get(thing, 0), delivery)
    counted_anew = redriven | _tired(history)
    for thing, (what, delivery) in ended.items():
        if thing not in counted_anew:
            checks += 1
            if deliveries.get(thing, 0) > delivery:
                raise Violation(f"message {thing} was {what} in delivery {delivery}, and was delivered again")
    return checks


def one_holder(history: History) -> int:
    """At every keeper, a message is given to one consumer at a time, and messages of one key are."""
    holders: dict[tuple[int, int, str], dict[int, int]] = {}
    keys: dict[tuple[int, int, str], dict[str, int]] = {}
    checks = 0
    for h in history.happenings:
        if h.what == "restore":  # what it held before is not known any more
            for where in [where for where in holders if where[:2] == (h.member, h.id[1])]:
                del holders[where], keys[where]
        elif h.what == "given":
            queue, consumer, _, key, _, _ = _given(h.body)
            where = (h.member, h.id[1], queue)
            held, busy = holders.setdefault(where, {}), keys.setdefault(where, {})
            checks += 1
            if h.id[0] in held:
                raise Violation(f"message {h.id[0]} was given to {held[h.id[0]]} and to {consumer} at once")
            if key and key in busy:
                raise Violation(f"messages {busy[key]} and {h.id[0]} of the key {key!r} are held at once")
            held[h.id[0]] = consumer
            if key:
                busy[key] = h.id[0]
        elif h.what == "back":
            where = (h.member, h.id[1], h.body.decode())
            holders.get(where, {}).pop(h.id[0], None)
            busy = keys.get(where, {})
            for key in [key for key, thing in busy.items() if thing == h.id[0]]:
                del busy[key]
    return checks


def keys_in_order(history: History) -> int:
    """A message of a key is not given before those of the key that were sent before it have left, unless they were
    delayed, rejected, or outlived their time."""
    lines: dict[str, list[int]] = {}
    for h in history.of("sent"):
        _, key, delay_us, ttl_us, _, thing = _sent(h.body)
        if key and thing >= 0 and not delay_us and not ttl_us:
            lines.setdefault(key, []).append(thing)
    firsts: dict[tuple[int, int], dict[int, int]] = {}
    lasts: dict[tuple[int, int], dict[int, int]] = {}
    dead = {h.id[0] for h in history.of("rejecting")} | _tired(history)
    for order, h in enumerate(history.happenings):
        if h.what == "given" and _given(h.body)[0] == "orders":
            firsts.setdefault((h.member, h.id[1]), {}).setdefault(h.id[0], order)
            lasts.setdefault((h.member, h.id[1]), {})[h.id[0]] = order
    checks = 0
    for line in lines.values():
        line.sort()
        usual = [thing for thing in line if thing not in dead]
        for where, given in firsts.items():
            seen = [thing for thing in usual if thing in given]
            for before, after in pairwise(seen):
                checks += 1
                if given[after] < lasts[where][before]:
                    raise Violation(f"message {after} was given before {before} of its key was done")
    return checks


def _tired(history: History) -> set[int]:
    """Messages that may have been dead letters because they were given back too often, and whose tries are counted anew
    after they were redriven. A message may be handed out the last time, come back and be buried in one command."""
    return {h.id[0] for h in history.of("given") if _given(h.body)[2] >= 3} | {h.id[0] for h in history.of("buried")}


def first_come(history: History) -> int:
    """A consumer of any message is given the one of the highest priority, and of these the one that was sent first.
    Keepers write down ``overtook`` where one that was ready was left behind."""
    checks = sum(1 for _ in history.of("given"))
    for h in history.of("overtook"):
        raise Violation(
            f"message {h.id[0]} was given at keeper {h.member}, and {h.id[1]}, which is before it, was ready"
        )
    return checks


def delayed(history: History) -> int:
    """A message that was sent with a delay is not delivered before the delay is over, by the time of the log."""
    wanted = {h.id[1]: _sent(h.body)[2] for h in history.of("sent") if h.id[1] >= 0}
    checks = 0
    for h in history.of("given"):
        queue, _, _, _, waited_us, _ = _given(h.body)
        delay_us = wanted.get(h.id[0], 0) if queue == "orders" else 0
        checks += 1
        if waited_us < delay_us:
            raise Violation(f"message {h.id[0]} was given after {waited_us} µs, and its delay is {delay_us}")
    return checks
