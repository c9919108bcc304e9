"""The algorithm of Xu and Liskov on a bad network: what is taken is taken once, and nothing is lost or invented."""

import pytest

from pluribus.core.errors import Overflow
from pluribus.spaces.roster import Enter, Strike
from pluribus.spaces.sorted import Sorted
from pluribus.spaces.templates import ANY, template_of
from pluribus.spaces.values import item_of, written_of
from pluribus.spaces.views import member as members
from pluribus.spaces.views import merging, words
from pluribus.spaces.views.member import ViewsMember
from pluribus.spaces.views.replica import MATCHES_MAX, TupleReplica
from tests.spaces.network import Network


def make(me, worker, holds, random):
    member = ViewsMember(me, worker, holds, random)
    member.holds = holds
    return member


class Story:
    """Workers that write and take; what each was given."""

    def __init__(self, seed, loss=0.1):
        self.net = Network(seed, make, words, loss)
        self.net.on_results = self.results
        self.written = {}  # name -> (value, member or None if it crashed)
        self.taken = {}  # name -> list of members
        self.reads = []
        self.asked = {}
        self.void = set()
        self.replaced = {}
        self.unsure = set()
        self.lost = False
        self.crashed = set()

    def results(self, member):
        results, member.results = member.results, []
        for result in results:
            kind = self.asked.pop((member.me, member.worker, result.request))
            if isinstance(kind, tuple) and result.item is not None:
                new = (member.worker, result.written)
                self.written[new] = (kind[1], (member.me, member.worker))
                self.replaced[result.name, (member.me, member.worker)] = new
                kind = "take"
            if result.item is not None:
                if kind == "take":
                    self.taken.setdefault(result.name, []).append((member.me, member.worker))
                else:
                    self.reads.append((result.name, written_of(result.item)))
        for item in member.void:
            value = written_of(item)
            name = next(name for name, (one, _) in self.written.items() if one == value)
            self.void.add((name, (member.me, member.worker)))
            self.unsure.add(self.replaced.get((name, (member.me, member.worker))))
        member.void = []
        self.lost = self.lost or member.lost > 0
        if self.net.random.random() < 0.02:
            member.validate()

    def write(self, me, value):
        member = self.net.members[me]
        name = member.write(item_of(value), 0, self.net.now)
        self.written[name] = (value, (me, member.worker))

    def ask(self, me, kind, template, probe=False):
        member = self.net.members[me]
        request = getattr(member, kind)(template_of(template), probe, self.net.now)
        self.asked[me, member.worker, request] = kind
        self.results(member)

    def replace(self, me, template, value, probe):
        member = self.net.members[me]
        request = member.replace(template_of(template), probe, item_of(value), 0, self.net.now)
        self.asked[me, member.worker, request] = ("replace", value)
        self.results(member)

    def crash(self, me):
        self.crashed.add((me, self.net.members[me].worker))
        self.net.crash(me)

    def check(self):
        for name, takers in self.taken.items():
            assert name in self.written, "a tuple was invented"
            valid = [one for one in takers if one not in self.crashed and (name, one) not in self.void]
            assert len(valid) <= 1, f"{name} was taken by {valid}"
        for name, value in self.reads:
            assert self.written[name][0] == value
        replicas = [one.replica for one in self.net.members.values() if one.replica is not None]
        names = {frozenset(replica.tuples) for replica in replicas}
        assert len(names) == 1, "replicas differ at the end"
        left = set(next(iter(names)))
        for name, (_, writer) in self.written.items():
            takers = [one for one in self.taken.get(name, ()) if (name, one) not in self.void]
            if writer not in self.crashed and not takers and not self.lost and name not in self.unsure:
                assert name in left, f"{name} is lost"
            if any(one not in self.crashed for one in takers):
                assert name not in left, f"{name} was taken and is there"


def test_one_member_alone():
    story = Story(0, 0)
    story.net.enter(1)
    story.net.run(1)
    story.write(1, ("a", 1))
    story.net.run(1)
    story.ask(1, "read", ("a", int))
    story.ask(1, "take", ("a", int))
    story.ask(1, "take", ("b", int), probe=True)
    story.net.run(1)
    assert len(story.taken) == 1 and len(story.reads) == 1 and not story.asked
    story.check()


def test_a_worker_without_a_replica_and_one_that_waits():
    story = Story(1)
    for me in (1, 2):
        story.net.enter(me)
    story.net.enter(3, holds=False)
    story.net.run(3)
    story.ask(3, "take", (str, int))
    story.ask(3, "read", ("x", ANY))
    story.net.run(2)
    assert not story.taken
    story.write(1, ("x", 5))
    story.net.run(5)
    assert [name[0] for name in story.taken] == [story.net.members[1].worker]
    story.check()


def test_a_take_looks_at_its_first_matches_and_not_at_the_whole_space(monkeypatch):
    replica = TupleReplica()
    for worker, first in ((2, 1), (1, 5_001)):  # they come in another order than that of their names
        for number in range(first, first + 1_000):
            replica.add((worker, number), item_of(("task", number)), 0.0)
    template = template_of(("task", int))
    replica.matches(template, (0, 0), 0.0)
    looked = []
    travelling = replica.travelling
    monkeypatch.setattr(replica, "travelling", lambda name, now: (looked.append(name), travelling(name, now))[1])
    plain = Sorted.__iter__
    monkeypatch.setattr(Sorted, "__iter__", lambda self: (seen.append(one) or one for one in plain(self)))
    seen = []
    replica.matches(template, (0, 0), 0.0)
    assert looked == [(1, number) for number in range(5_001, 5_001 + MATCHES_MAX)]
    assert len(seen) <= MATCHES_MAX + 1
    assert replica.every(template)[0] == item_of(("task", 1)), "the one that came first"


def test_of_many_writes_each_travels_once():
    story = Story(4, 0)
    for me in (1, 2, 3):
        story.net.enter(me)
    story.net.run(3)
    sent = []
    deliver = story.net.deliver

    def counted(sender, to, data):
        word = words.decode(data)
        if isinstance(word, words.Do):
            sent.append(len(word.ops))
        deliver(sender, to, data)

    story.net.deliver = counted
    for number in range(2_000):
        story.write(1, ("a", number))
    story.net.run(10)
    assert story.net.members[1].pending == 0
    assert sum(sent) < 2 * 3 * 2_000, "some are repeated, because this network changes their order"
    story.check()


def test_what_a_request_under_way_brings_about_is_not_refused_for_want_of_room(monkeypatch):
    story = Story(5, 0)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(2)
    story.ask(1, "take", ("a", int))
    story.net.run(2)
    monkeypatch.setattr(members, "OPS_MAX", 0)
    with pytest.raises(Overflow, match="await flush"):
        story.net.members[1].check_room()
    story.write(2, ("a", 1))
    story.net.run(3)
    assert len(story.taken) == 1
    story.write(1, ("a", 1))  # a cancelled take gives it back
    story.net.run(1)
    assert story.net.members[1].pending == 0
    story.check()


@pytest.mark.parametrize("seed", range(3))
def test_contention(seed):
    """Everybody takes from the same set, and every take has its tuple in the end."""
    story = Story(seed, 0.3)
    for me in (1, 2, 3, 4):
        story.net.enter(me, holds=me <= 2)
    story.net.run(5)
    for number in range(12):
        story.write(1 + number % 4, ("a", number))
        story.ask(1 + number % 4, "take", ("a", int))
        story.net.run(0.02)
    story.net.run(60)
    assert len(story.taken) == 12 and not story.asked
    story.check()


@pytest.mark.parametrize("seed", range(24))
def test_faults(seed):
    story = Story(seed, 0.15 if seed % 2 else 0.0)
    net = story.net
    random = net.random
    for me in range(1, 2 + random.randrange(2, 5)):
        net.enter(me, holds=me <= 2 or random.random() < 0.5)
    net.run(3)
    fresh = 100
    for _ in range(120):
        me = random.choice(list(net.members))
        dice = random.random()
        if dice < 0.4:
            fresh += 1
            story.write(me, (random.choice("ab"), fresh))
        elif dice < 0.75:
            template = random.choice([("a", int), ("b", ANY), (str, int), (str, ANY)])
            if random.random() < 0.25:
                fresh += 1
                story.replace(me, template, (random.choice("ab"), fresh), random.random() < 0.3)
            else:
                story.ask(me, "take", template, probe=random.random() < 0.3)
        elif dice < 0.9:
            story.ask(me, "read", random.choice([("a", int), (str, 102)]), probe=random.random() < 0.5)
        elif dice < 0.94 and len(net.members) > 2 and len([1 for m in net.members.values() if m.holds]) > 2:
            if me not in net.cut:
                story.crash(me)
        elif dice < 0.97 and not net.cut and len(net.members) > 2:
            if len([1 for other, m in net.members.items() if m.holds and other != me]) >= 1:
                net.exclude(me)
        else:
            fresh += 1
            net.enter(fresh, holds=random.random() < 0.5)
        net.run(random.random() * 0.3)
    net.loss = 0
    net.run(20)
    # Whoever still waits does so because nothing matches; two tuples of each name show that it is alive.
    assert all(member.pending == 0 for member in net.members.values())
    story.check()


def in_pieces(seeds):
    """Words of one or two tuples each."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(merging, "WORD_BYTES_MAX", 150)
        patched.setattr(members, "WORD_BYTES_MAX", 150)
        for module in (merging, members):
            patched.setattr(module, "NAMES_MAX", 3)
        patched.setattr(merging, "WANTED_MAX", 4)
        for seed in seeds:
            test_faults(seed)


@pytest.mark.parametrize("seed", range(12))
def test_moving_in_many_pieces_under_faults(seed):
    in_pieces([seed])


def test_many_tuples_and_long_ones_are_no_long_word():
    story = Story(1, 0)
    longest = [0]
    deliver = story.net.deliver

    def measured(sender, to, data):
        longest[0] = max(longest[0], len(data))
        deliver(sender, to, data)

    story.net.deliver = measured
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    for number in range(30):
        story.write(1 + number % 2, ("a", number, "x" * 200_000))
    story.net.run(5)
    story.net.enter(3)
    story.net.run(10)
    story.crash(1)
    story.net.run(5)
    story.ask(3, "take", ("a", int, str))
    story.net.run(5)
    assert len(story.taken) == 1 and longest[0] < merging.WORD_BYTES_MAX + 210_000
    assert len(story.net.members[3].replica.tuples) == 29
    story.check()


def test_the_names_of_many_tuples_are_told_in_parts(monkeypatch):
    for module in (merging, members):
        monkeypatch.setattr(module, "NAMES_MAX", 10)
    story = Story(2, 0.2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    for number in range(55):
        story.write(1, ("a", number))
    story.net.run(5)
    story.net.enter(3)
    story.net.run(10)
    assert len(story.net.members[3].replica.tuples) == 55
    story.check()


def test_what_is_written_while_the_loss_of_the_space_is_found_out_belongs_to_the_new_one():
    story = Story(3, 0)
    story.net.enter(1)
    story.net.enter(2, holds=False)
    story.net.run(3)
    story.write(2, ("a", 0))
    story.net.run(1)
    member, entered = story.net.members[2], []
    enter = member.enter

    def entering(epoch, now):
        enter(epoch, now)
        entered.append(epoch)
        story.write(2, ("a", len(entered)))  # it has reported already

    member.enter = entering
    story.crash(1)
    story.net.enter(3)
    story.net.run(2)
    del member.enter
    story.net.run(5)
    assert member.lost == 1 and member.pending == 0
    found = [written_of(item) for item, _ in story.net.members[3].replica.tuples.values()]
    assert ("a", 0) not in found and ("a", len(entered)) in found


def test_what_is_written_while_there_is_no_replica_is_there_with_the_next_one():
    story = Story(4, 0)
    story.net.enter(1)
    story.net.enter(2, holds=False)
    story.net.run(3)
    story.write(2, ("a", 1))
    story.net.run(1)
    story.crash(1)
    story.net.run(3)
    member = story.net.members[2]
    assert member.lost == 1 and member.opened
    story.write(2, ("a", 2))
    story.ask(2, "take", ("a", int))
    story.net.run(3)
    story.net.enter(3)
    story.net.run(5)
    assert member.lost == 1, "there was nothing to lose"
    assert [written for name, (written, _) in story.written.items() if name in story.taken] == [("a", 2)]


@pytest.mark.parametrize("seed", range(6))
def test_leases_that_end_while_an_epoch_is_put_together(seed):
    """What was reported is held until the epoch is there; else the eldest would ask for it for ever."""
    story = Story(seed, 0.2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    for number in range(60):
        story.net.members[1 + number % 2].write(item_of(("a", number)), 100_000 + 10_000 * number, story.net.now)
    story.net.run(0.1)
    story.net.enter(3)
    story.net.run(0.2)
    story.crash(2)
    story.net.run(60)
    assert all(member.opened and not member.replica.tuples for member in story.net.members.values())


def leave(story, me):
    """What a member does first that leaves in order: it is a member, and keeps no tuples."""
    story.net.members[me].holds = False
    story.net.change(Enter(me, story.net.members[me].worker, False))


def depart(story, me):
    """It is gone, after it left in order."""
    del story.net.members[me]
    story.net.change(Strike([me]))


def left_with_tuples(seed):
    """All members with replicas are about to leave, one after another: only the last one has tuples yet."""
    story = Story(seed, 0)
    for me in (1, 2):
        story.net.enter(me)
    story.net.enter(3, holds=False)
    story.net.run(3)
    for number in range(5):
        story.write(1 + number % 3, ("a", number))
    story.net.run(1)
    for me in (1, 2):
        leave(story, me)
        story.net.run(2)
    return story


def found(story, me):
    return sorted(written_of(item) for item, _ in story.net.members[me].replica.tuples.values())


def test_the_last_one_that_leaves_keeps_the_tuples_for_one_that_comes():
    story = left_with_tuples(1)
    story.net.enter(4)
    story.net.run(3)
    assert found(story, 4) == [("a", number) for number in range(5)]
    assert all(member.lost == 0 for member in story.net.members.values())


def test_when_the_last_one_with_tuples_has_left_all_others_are_told_once():
    story = left_with_tuples(1)
    depart(story, 2)
    story.net.run(2)
    assert [story.net.members[me].lost for me in (1, 3)] == [1, 1]
    depart(story, 1)
    story.net.run(2)
    story.net.enter(4)
    story.net.run(3)
    story.write(3, ("a", 5))
    story.net.run(2)
    assert found(story, 4) == [("a", 5)]
    assert story.net.members[3].lost == 1, "there was nothing more to lose"


def test_all_leave_at_once_while_a_write_is_at_one_of_them():
    story = Story(1, 0)
    for me in (1, 2):
        story.net.enter(me)
    story.net.enter(3, holds=False)
    story.net.run(3)
    lost, deliver = [], story.net.deliver

    def losing(sender, to, data):
        if to == 1 and isinstance(words.decode(data), words.Do):
            lost.append(data)
        else:
            deliver(sender, to, data)

    story.net.deliver = losing
    story.write(3, ("a", 1))
    story.net.run(0.1)
    assert lost and found(story, 1) == [] and found(story, 2) == [("a", 1)]
    for me in (1, 2):
        leave(story, me)
    story.net.run(3)
    assert story.net.roster.epoch.opened == story.net.roster.epoch.number
    assert found(story, 1) == found(story, 2) == [("a", 1)], "one of them brings the other up to date"
    story.net.enter(4)
    story.net.run(3)
    assert found(story, 4) == [("a", 1)]
