"""A queue at random against a list of messages that is searched from its beginning each time."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import pluribus.queues.messages as messages
from pluribus.filters import parse
from pluribus.filters.packed import packed
from pluribus.queues.segments import Segment
from pluribus.queues.times import is_over
from pluribus.queues.words import (
    AGAIN,
    BACK,
    NACK,
    NEXT,
    REJECT,
    RELEASE,
    Attach,
    Configure,
    Detach,
    Pause,
    Purge,
    Redrive,
    Settings,
    Settle,
)

from .ground import Bench, Sender

S = 1_000_000

KEYS = st.sampled_from(["", "", "a", "b"])
REGIONS = st.sampled_from([None, {"region": "eu"}, {"region": "us", "n": 3}])
WHERES = {"": lambda seen: True, "region = 'eu'": lambda seen: seen.get("region") == "eu"}
ONE = st.tuples(
    st.sampled_from([4, 4, 0, 9]), KEYS, REGIONS, st.sampled_from([0, 0, 0, S]), st.sampled_from([0, 0, 3 * S])
)


class Message:
    def __init__(self, thing, body, priority, key, properties, due, expiry):
        self.thing, self.body, self.priority, self.key = thing, body, priority, key
        self.seen = properties or {}
        self.due, self.expiry = due, expiry
        self.joined = not due
        """Whether it is in the line of its key."""
        self.holder = None
        self.tries = 0
        self.dead = False


class Random(RuleBasedStateMachine):
    """A queue against a list of messages that is searched from its beginning each time."""

    @initialize(tries=st.sampled_from([0, 3]), lease=st.sampled_from([0, 2 * S]), columns=st.sampled_from([8, 512]))
    def begin(self, tries, lease, columns):
        messages.RUN_MIN, messages.COLUMNS_MAX, messages.THIN_MIN = 4, columns, 4
        self.bench, self.sender = Bench(), Sender()
        self.settings = Settings(tries_max=tries, lease_us=lease, backoff_us=S, backoff_us_max=4 * S, window_us=0)
        self.bench.apply(Configure(self.settings))
        self.messages = {}
        self.consumers = {}
        self.settled = set()
        self.serial = 0
        self.paused = False

    # What may be handed out, by the rules.

    def blocked(self, message):
        line = [one for one in self.messages.values() if one.key == message.key and one.joined and not one.dead]
        if any(one.holder is not None or (one.due and one.tries) for one in line):
            return True
        return min(one.thing for one in line) != message.thing

    def available(self, message):
        if message.holder is not None or message.dead or message.due:
            return False
        return not message.key or not self.blocked(message)

    def turn(self, given):
        """Those with a selector are served first, the others in order."""
        who, thing, _ = given
        return (not self.consumers[who][0], -self.messages[thing].priority, thing)

    def collect(self):
        """Take over what was handed out, and check it."""
        for who, thing, delivery in sorted(self.bench.news(), key=self.turn):
            message = self.messages[thing]
            assert self.available(message), f"message {thing} was handed out"
            where, credit, held, _ = self.consumers[who]
            assert WHERES[where](message.seen) and len(held) < credit
            better = [
                one
                for one in self.messages.values()
                if (-one.priority, one.thing) < (-message.priority, thing) and self.available(one)
            ]
            if not where:
                assert not better, f"message {thing} before {better[0].thing}"
            assert delivery == message.tries + 1
            message.holder = who
            message.until = self.bench.now_us + self.settings.lease_us if self.settings.lease_us else 0
            held.append(thing)
        if self.paused:
            return
        for where, credit, held, _ in self.consumers.values():
            if len(held) < credit:
                missed = [one for one in self.messages.values() if self.available(one) and WHERES[where](one.seen)]
                assert not missed, f"nobody gave message {missed[0].thing} to one who waits"

    @rule(messages=st.lists(ONE, min_size=1, max_size=6))
    def send(self, messages):
        bodies = [b"%d" % (len(self.settled) * 1_000 + self.sender.next + at) for at in range(len(messages))]
        priorities, keys, properties, delays, ttls = map(list, zip(*messages, strict=True))
        first = self.bench.apply(
            self.sender.pack(
                bodies, priorities=priorities, keys=keys, properties=properties, delays_us=delays, ttls_us=ttls
            )
        ).number
        now = self.bench.now_us
        for at, (priority, key, seen, delay, ttl) in enumerate(messages):
            due, expiry = now + delay if delay else 0, now + ttl if ttl else 0
            self.messages[first + at] = Message(first + at, bodies[at], priority, key, seen, due, expiry)
        self.collect()

    @rule(count=st.integers(1, 9))
    def send_plain(self, count):
        bodies = [b"%05d" % (self.sender.next + at) for at in range(count)]
        first = self.bench.apply(self.sender.pack(bodies)).number
        for at, body in enumerate(bodies):
            self.messages[first + at] = Message(first + at, body, 4, "", None, 0, 0)
        self.collect()

    @rule(who=st.integers(1, 3), credit=st.integers(0, 5), where=st.sampled_from(sorted(WHERES)))
    def attach(self, who, credit, where):
        selector = packed(parse(where)) if where else b""
        answer = self.bench.apply(Attach(who, who, 5 * S, selector))
        held = [thing for thing, _ in answer.things]
        before = self.consumers.get(who)
        assert held == (before[2] if before else [])
        self.consumers[who] = (where, 0, held, answer.number)
        self.credit(who, credit)

    @rule(who=st.integers(1, 3), credit=st.integers(0, 5))
    def credit(self, who, credit):
        if who not in self.consumers:
            return
        where, _, held, epoch = self.consumers[who]
        self.serial += 1
        self.bench.apply(Settle(who, epoch, serial=self.serial, things_max=credit, bytes_max=1 << 30))
        self.consumers[who] = (where, credit, held, epoch)
        self.collect()

    @rule(who=st.integers(1, 3), count=st.integers(1, 3))
    def acknowledge(self, who, count):
        if who not in self.consumers or not self.consumers[who][2]:
            return
        _, _, held, epoch = self.consumers[who]
        things = sorted(held)[:count]
        answer = self.bench.apply(Settle(who, epoch, [(thing, 1) for thing in things] + [(things[0], 1)]))
        assert answer.lost == [things[0]]
        for thing in things:
            held.remove(thing)
            self.settled.add(thing)
            del self.messages[thing]
        self.collect()

    @rule(who=st.integers(1, 3), verb=st.sampled_from([NACK, BACK, REJECT, RELEASE]), wait=st.sampled_from([0, S]))
    def give_back(self, who, verb, wait):
        if who not in self.consumers or not self.consumers[who][2]:
            return
        _, _, held, epoch = self.consumers[who]
        thing = held.pop()
        self.bench.apply(Settle(who, epoch, [], [(thing, verb, wait, "so")]))
        if verb == BACK:
            wait = min(S << self.messages[thing].tries, 4 * S)
        self.came_back(thing, verb != RELEASE, 0 if verb == RELEASE else wait, verb == REJECT)
        self.collect()

    def came_back(self, thing, counts, wait, dead=False):
        message = self.messages[thing]
        message.holder = None
        message.tries += counts
        if not dead and message.expiry and is_over(message.expiry, self.bench.now_us):
            del self.messages[thing]
        elif dead or (counts and self.settings.tries_max and message.tries >= self.settings.tries_max):
            message.dead, message.due, message.expiry = True, 0, 0
        elif wait:
            message.due = self.bench.now_us + wait

    @rule(who=st.integers(1, 3), dies=st.booleans())
    def leave(self, who, dies):
        if who not in self.consumers:
            return
        _, _, held, _ = self.consumers.pop(who)
        for thing in held:
            self.came_back(thing, dies, 0)
        if dies:
            self.bench.expire([who])
        else:
            self.bench.apply(Detach(who))
        self.collect()

    @rule(step=st.sampled_from([S // 2, S, 2 * S]))
    def wait(self, step):
        """Times are rounded up to the end of a bucket; steps are long enough that it does not matter."""
        self.bench.now_us += step + 40_000
        now = self.bench.now_us - 20_000
        for message in sorted(self.messages.values(), key=lambda one: one.thing):
            if message.holder is not None and message.until and message.until <= now:
                self.consumers[message.holder][2].remove(message.thing)
                self.came_back(message.thing, True, 0)
        for message in list(self.messages.values()):
            if message.expiry and message.expiry <= now and message.holder is None and not message.dead:
                if message.due and message.due <= message.expiry and message.due <= now:
                    message.due = 0
                del self.messages[message.thing]
            elif message.due and message.due <= now:
                message.due, message.joined = 0, True
        # Several things happen in one tick, one after another: what was handed out between is not checked in detail.
        handed = self.bench.queue.demands
        self.bench.ticks()
        for who, thing, delivery in self.bench.news():
            if thing in self.messages and thing in handed.consumers[who].held:
                message = self.messages[thing]
                if message.holder is None:
                    message.holder, message.due, message.joined = who, 0, True
                    message.tries = delivery - 1
                    message.until = self.bench.now_us + self.settings.lease_us if self.settings.lease_us else 0
                    self.consumers[who][2].append(thing)
        gone = [thing for thing in self.messages if self.bench.queue.messages.segments.find(thing) is None]
        assert all(self.messages[thing].expiry for thing in gone)
        for thing in gone:
            del self.messages[thing]

    @rule(paused=st.booleans())
    def pause(self, paused):
        late = self.bench.apply(Pause(paused, self.bench.queue.messages.totals.changes + 1))
        assert late.status == (AGAIN if paused == self.paused else NEXT)
        self.bench.apply(Pause(paused, self.bench.queue.messages.totals.changes))
        self.paused = paused
        self.collect()

    @rule(dead=st.booleans(), before=st.integers(0, 20))
    def purge(self, dead, before):
        gone = [
            one.thing
            for one in self.messages.values()
            if one.dead == dead and one.holder is None and one.thing < before
        ]
        assert self.bench.apply(Purge(before, dead)).number == len(gone)
        for thing in gone:
            del self.messages[thing]
        self.collect()

    @rule(count=st.integers(1, 3))
    def redrive(self, count):
        dead = list(self.bench.queue.messages.dead)[:count]
        assert all(self.messages[thing].dead for thing in dead)
        assert self.bench.apply(Redrive(count)).number == len(dead)
        for thing in dead:
            self.messages[thing].dead, self.messages[thing].tries = False, 0
            self.messages[thing].joined = True
        self.collect()

    @rule()
    def restore(self):
        self.bench.again()

    @rule(part=st.integers(0, 3))
    def forward(self, part):
        rows = {row: held for row, held in self.bench.rows.items() if row % 4 == part and self.bench.live[row]}
        for command in self.bench.queue.forward(rows, {}):
            self.bench.apply(command)
        assert not any(self.bench.live[row] for row in rows)
        self.collect()

    @invariant()
    def same(self):
        if not hasattr(self, "bench"):
            return
        self.bench.queue.validate()
        live = {segment.thing_at(at) for segment in self.bench.queue.messages.segments for at in _bits(segment)}
        assert live == set(self.messages)
        for thing, message in self.messages.items():
            assert self.bench.body(thing) == message.body
        held = Counter(thing for _, _, held, _ in self.consumers.values() for thing in held)
        assert set(held) == {thing for thing, one in self.messages.items() if one.holder is not None}
        charges = Counter()
        for segment in self.bench.queue.messages.segments:
            for at in _bits(segment):
                charges[segment.handle(at)[0]] += segment.size_of(at)
            if segment.rest:
                charges[segment.row] += segment.rest
        assert charges == +self.bench.live

    def teardown(self):
        messages.RUN_MIN, messages.COLUMNS_MAX, messages.THIN_MIN = 32, 4_096, 256


def _bits(segment: Segment):
    return [at for at in range(segment.count) if segment.live >> at & 1]


TestRandom = Random.TestCase
TestRandom.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
