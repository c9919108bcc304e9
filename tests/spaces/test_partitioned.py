"""A partitioned space on a bad network: tuples are taken once, waiting takes move, and what is lost is told."""

import pytest

from pluribus.spaces.partitioned import server as server_of
from pluribus.spaces.partitioned import words
from pluribus.spaces.partitioned.member import PartitionedMember
from pluribus.spaces.partitioned.ranges import RangeState, range_of
from pluribus.spaces.templates import ANY, template_of
from pluribus.spaces.values import item_of, written_of
from tests.spaces.network import Network


class Story:
    def __init__(self, seed, loss=0.1, copies=1, key=0):
        self.net = Network(seed, self.make, words, loss)
        self.copies = copies
        self.key = key
        self.net.on_results = self.results
        self.written = {}
        self.kept = set()
        self.taken = {}
        self.reads = []
        self.asked = {}
        self.crashed = set()
        self.lost = False
        self.counts = []
        self.relets = []

    def make(self, me, worker, holds, random):
        member = PartitionedMember(me, worker, random, self.copies, self.key)
        member.holds = holds
        return member

    def results(self, member):
        results, member.results = member.results, []
        for result in results:
            kind = self.asked.pop((member.me, member.worker, result.request))
            if kind == "write" and result.unknown:
                self.lost = True
            elif kind == "write":
                self.kept.add(result.name)
            elif kind == "tally":
                self.counts.append((result.count, [written_of(item) for item in result.items]))
            elif kind == "relet":
                self.relets.append(result.done)
            elif result.item is not None:
                if kind == "replace":
                    self.kept.add((member.worker, result.request))
                if kind in ("take", "replace"):
                    self.taken.setdefault(result.name, []).append((member.me, member.worker))
                else:
                    self.reads.append((result.name, written_of(result.item)))
        if member.lost:
            self.lost = True
        if self.net.random.random() < 0.02:
            member.validate()

    def write(self, me, value):
        member = self.net.members[me]
        request = member.write(item_of(value), 0, self.net.now)
        self.asked[me, member.worker, request] = "write"
        self.written[member.worker, request] = value

    def ask(self, me, kind, template, *more):
        member = self.net.members[me]
        request = getattr(member, kind)(template_of(template, all_allowed=True), *(more or (False,)), self.net.now)
        self.asked[me, member.worker, request] = kind
        self.results(member)
        return request

    def replace(self, me, template, value, probe=False):
        member = self.net.members[me]
        self.written[member.worker, member._next] = value
        request = member.replace(template_of(template), probe, item_of(value), 0, self.net.now)
        self.asked[me, member.worker, request] = "replace"
        self.results(member)

    def relet(self, me, name, lease_us, ends=False):
        member = self.net.members[me]
        request = member.relet(name, item_of(self.written[name]), lease_us, ends, self.net.now)
        self.asked[me, member.worker, request] = "relet"

    def crash(self, me):
        self.crashed.add((me, self.net.members[me].worker))
        self.net.crash(me)

    def left(self):
        found = {}
        for member in self.net.members.values():
            for number in member.server.owned():
                for name, (item, _) in member.server.states[number].tuples.items():
                    assert name not in found, "a tuple is at two servers"
                    found[name] = written_of(item)
        return found

    def check(self):
        for name, takers in self.taken.items():
            assert name in self.written and len(takers) == 1, f"{name} was taken by {takers}"
        for name, value in self.reads:
            assert self.written[name] == value
        left = self.left()
        for name in left:
            assert name in self.written and name not in self.taken
        if not self.lost:
            missing = self.kept - set(self.taken) - set(left)
            takes = [key for key, kind in self.asked.items() if kind in ("take", "replace") and key[:2] in self.crashed]
            assert len(missing) <= len(takes), f"{missing} are lost, and {len(takes)} takes were under way"


def test_one_server():
    story = Story(0, 0)
    story.net.enter(1)
    story.net.run(1)
    for number in range(5):
        story.write(1, ("a", number))
    story.net.run(1)
    story.ask(1, "read", ("a", 3))
    story.ask(1, "take", (str, 4))
    story.ask(1, "take", ("b", int), True)
    story.net.run(1)
    story.ask(1, "tally", None, 10)
    story.net.run(1)
    assert len(story.taken) == 1 and story.reads[0][1] == ("a", 3) and not story.asked
    assert story.counts[0][0] == 4
    story.check()


def test_counting_looks_at_no_tuple_and_what_is_read_at_once_is_bounded(monkeypatch):
    story = Story(0, 0)
    story.net.enter(1)
    story.net.run(1)
    for number in range(5):
        story.write(1, ("a", number))
    story.net.run(1)
    monkeypatch.setattr(server_of, "TALLY_BYTES_MAX", 3 * item_of(("a", 1)).size)
    story.ask(1, "tally", None, 10)
    story.net.run(1)
    monkeypatch.setattr(RangeState, "matches", None)
    story.ask(1, "tally", ("a", int), 0)
    story.net.run(1)
    assert [(count, len(items)) for count, items in story.counts] == [(5, 3), (5, 0)]


def test_waiting_takes_are_served_in_their_order_wherever_the_range_moves():
    story = Story(3, 0.05, copies=2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    order = []
    for me in (1, 2, 1, 2):
        story.ask(me, "take", ("job", int))
        order.append(me)
        story.net.run(1)
    for me in (3, 4, 5):
        story.net.enter(me)
    story.net.run(5)
    for number in range(4):
        story.write(3, ("job", number))
        story.net.run(3)
    takers = [story.taken[name][0][0] for name in story.written]
    assert takers == order
    story.check()


def test_an_interest_at_every_server_is_met_by_one():
    story = Story(4, 0.1)
    for me in (1, 2, 3):
        story.net.enter(me)
    story.net.run(3)
    story.ask(1, "take", (str, int))
    story.net.run(3)
    for name in "abcdefgh":
        story.write(2, (name, 1))
    story.net.run(5)
    assert len(story.taken) == 1 and len(story.left()) == 7
    assert not any(state.aside for member in story.net.members.values() for state in member.server.states.values())
    story.check()


def test_an_interest_of_which_no_copy_knows_is_left_again_when_its_owner_dies():
    """The question was repeated meanwhile: its answer waits for the copies, too."""
    story = Story(9, 0, copies=2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.enter(3, holds=False)
    story.net.run(3)
    members = story.net.members
    owner = next(me for me in (1, 2) if range_of(item_of(("job", 1)), 0) in members[me].server.owned())
    deliver = story.net.deliver
    story.net.deliver = lambda sender, to, data: (
        None if sender == owner and isinstance(words.decode(data), words.Copy) else deliver(sender, to, data)
    )
    story.ask(3, "take", ("job", int))
    story.net.run(1)
    story.crash(owner)
    story.net.run(5)
    story.write(3, ("job", 1))
    story.net.run(3)
    assert len(story.taken) == 1 and not story.asked
    story.check()


def test_a_question_that_comes_twice_takes_nothing_for_a_request_that_is_over():
    """It was repeated because the answer was late; then the answer came: there is nothing."""
    story = Story(10, 0)
    story.net.enter(1)
    story.net.enter(2, holds=False)
    story.net.run(2)
    deliver, asked = story.net.deliver, []

    def kept(sender, to, data):
        if isinstance(words.decode(data), words.Seek):
            asked.append((sender, to, data))
        deliver(sender, to, data)

    story.net.deliver = kept
    story.ask(2, "take", ("a", int), True)
    request = story.ask(2, "take", ("b", int))
    story.net.run(1)
    assert len(asked) == 2 and len(story.asked) == 1
    story.net.members[2].cancel(request, story.net.now)
    story.net.run(1)
    for name in "ab":
        story.write(1, (name, 1))
    story.net.run(1)
    for one in asked:
        deliver(*one)
    story.write(1, ("b", 2))
    story.net.run(1)
    assert len(story.left()) == 3 and not story.asked
    story.check()


def test_copies_lose_nothing_and_one_copy_tells_what_it_lost():
    for copies in (1, 2):
        story = Story(5, 0.05, copies=copies)
        for me in (1, 2, 3, 4):
            story.net.enter(me)
        story.net.run(3)
        for number in range(40):
            story.write(1, (f"name {number}", number))
        story.net.run(3)
        assert len(story.kept) == 40
        story.crash(3)
        story.net.run(5)
        assert story.lost == (copies == 1)
        if copies == 1:
            told = story.net.members[1].lost[0]
            assert 40 - len(story.left()) > 0 and len(told) > 0
        else:
            assert len(story.left()) == 40


@pytest.mark.parametrize("seed", range(12))
def test_with_copies_nothing_is_lost_if_members_die_one_after_the_other(seed):
    """Each dies when the epoch without the one before is open, whether or not the others have seen that."""
    story = Story(seed, 0.1, copies=2)
    net = story.net
    random = net.random
    for me in (1, 2, 3):
        net.enter(me)
    net.enter(10, holds=False)
    fresh = 100
    for number in range(150):
        dice = random.random()
        epoch = net.roster.epoch
        still = epoch.opened == epoch.number and set(epoch.members) == set(net.members)
        if dice < 0.5:
            story.write(10, (random.choice("abcdef"), number))
        elif dice < 0.75:
            story.ask(10, "take", (random.choice("abcdef"), int), random.random() < 0.5)
        elif dice < 0.93 and still and len(epoch.holders) > 2:
            story.crash(random.choice([me for me in net.members if me != 10]))
        elif dice > 0.93 and len(epoch.holders) < 5:
            fresh += 1
            net.enter(fresh)
        net.run(random.random() * 0.2)
    net.loss = 0
    net.run(20)
    left = story.left()
    assert story.crashed and not story.lost
    for name in story.kept - set(story.taken):
        assert name in left, f"{story.written[name]} is lost"
    story.check()


def test_a_member_that_was_cut_off_is_told_what_it_gave_up_when_it_comes_back():
    """Others have begun its ranges anew. What it did meanwhile is told to be lost, too."""
    for copies in (1, 2):
        story = Story(7, 0, copies=copies)
        for me in (1, 2, 3):
            story.net.enter(me)
        story.net.run(3)
        for number in range(40):
            story.write(1, (f"name {number}", number))
        story.net.run(3)
        member = story.net.members[2]
        story.net.exclude(2)
        for number in range(40, 60):
            story.write(2, (f"name {number}", number))
        story.net.run(0.9)
        mine = [
            written_of(item) for at in member.server.owned() for item, _ in member.server.states[at].tuples.values()
        ]
        story.net.run(10)
        if copies == 1:
            (told,) = member.lost
            assert sum(told.values()) == len(mine) > 0
            assert not set(mine) & set(story.left().values())
        else:
            assert not member.lost and len(story.left()) == 60


def test_a_cancelled_take_gets_nothing_afterwards():
    story = Story(6, 0.1)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(2)
    request = story.ask(1, "take", ("a", ANY))
    story.net.run(2)
    story.net.members[1].cancel(request, story.net.now)
    story.net.run(2)
    story.write(2, ("a", 1))
    story.net.run(2)
    assert not story.taken and len(story.left()) == 1 and not story.asked


def test_leases_are_renewed_and_cancelled_wherever_the_range_is():
    story = Story(8, 0.1, copies=2)
    for me in (1, 2, 3):
        story.net.enter(me)
    story.net.run(3)
    for number in range(6):
        member = story.net.members[1]
        request = member.write(item_of((f"name {number}", number)), 5_000_000, story.net.now)
        story.asked[1, member.worker, request] = "write"
        story.written[member.worker, request] = (f"name {number}", number)
    story.net.run(2)
    names = list(story.written)
    for name in names[:3]:
        story.relet(1, name, 60_000_000)
    story.relet(1, names[3], 0, True)
    story.net.run(1)
    assert story.relets == [True] * 4 and len(story.left()) == 5
    story.net.enter(4)
    story.net.run(10)
    assert set(story.left()) == set(names[:3])
    story.relet(1, names[3], 60_000_000)
    story.relet(1, names[5], 0, True)
    story.net.run(2)
    assert story.relets[4:] == [False, False]


def test_a_late_word_about_a_lease_changes_nothing():
    story = Story(11, 0)
    member = story.net.enter(1)
    story.net.run(1)
    deliver, asked = story.net.deliver, []

    def kept(sender, to, data):
        if isinstance(words.decode(data), words.Relet):
            asked.append((sender, to, data))
        deliver(sender, to, data)

    story.net.deliver = kept
    name = (member.worker, member.write(item_of(("a", 1)), 60_000_000, story.net.now))
    story.asked[1, *name] = "write"
    story.written[name] = ("a", 1)
    story.net.run(0.5)
    for lease_us in (2_000_000, 60_000_000):
        story.relet(1, name, lease_us)
        story.net.run(0.5)
    deliver(*asked[0])
    story.net.run(10)
    assert story.relets == [True, True] and name in story.left()


def test_a_take_and_its_write_are_one_wherever_they_belong():
    for seed in range(6):
        story = Story(seed, 0.1, copies=2)
        for me in (1, 2, 3):
            story.net.enter(me)
        story.net.run(3)
        story.write(1, ("name 0", 0))
        story.net.run(1)
        for number in range(20):
            story.replace(1 + number % 2, (f"name {number}", int), (f"name {number + 1}", number + 1))
            if number == 10:
                story.crash(3)
                story.net.enter(4)
            story.net.run(0.05 * story.net.random.random() if number in (9, 10, 11) else 2)
        story.net.run(10)
        live = list(story.left().values())
        assert len(live) == 1, live
        assert not any(one.server.states[at].owed for one in story.net.members.values() for at in one.server.owned())
        story.check()


@pytest.mark.parametrize("seed", range(24))
def test_faults(seed):
    story = Story(seed, 0.15 if seed % 2 else 0.0, copies=1 + seed % 3)
    net = story.net
    random = net.random
    for me in range(1, 2 + random.randrange(2, 5)):
        net.enter(me, holds=me <= 2 or random.random() < 0.7)
    net.run(3)
    fresh = 100
    for _ in range(120):
        me = random.choice(list(net.members))
        dice = random.random()
        holders = [other for other, member in net.members.items() if member.holds]
        if dice < 0.4:
            story.write(me, (random.choice("abcdef"), random.randrange(3)))
        elif dice < 0.75:
            template = random.choice([("a", int), ("b", ANY), (str, int), (str, 1)])
            if random.random() < 0.2:
                story.replace(me, template, (random.choice("abcdef"), random.randrange(3)), random.random() < 0.3)
                continue
            request = story.ask(me, "take", template, random.random() < 0.3)
            if random.random() < 0.2:
                net.at(random.random(), lambda me=me, request=request, m=net.members[me]: m.cancel(request, net.now))
        elif dice < 0.9:
            story.ask(me, "read", random.choice([("a", int), (str, 2)]), random.random() < 0.5)
        elif dice < 0.94 and len(holders) > 2 and me not in net.cut:
            story.crash(me)
        elif dice < 0.97 and not net.cut and len([one for one in holders if one != me]) >= 2:
            net.exclude(me)
        else:
            fresh += 1
            net.enter(fresh, holds=random.random() < 0.5)
        net.run(random.random() * 0.3)
    net.loss = 0
    net.run(20)
    assert all(member.pending == 0 for member in net.members.values())
    asking = {key: kind for key, kind in story.asked.items() if key[0] in net.members}
    # Whoever still waits does so because nothing matches: one tuple for each brings all of them to an end.
    me = next(iter(net.members))
    for _ in range(len(asking) + 1):
        for value in (("a", 1), ("b", 1), ("a", 2)):
            story.write(me, value)
    net.run(10)
    still = [(key, kind) for key, kind in story.asked.items() if key[0] in net.members]
    live = [one for one in still if net.members[one[0][0]].worker == one[0][1]]
    assert not live, f"{len(live)} still wait"
    story.check()
