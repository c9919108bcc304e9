"""Registrations of the kinds *views* and *partitioned* on a bad network: nothing is missed in silence or told twice."""

import pytest

from pluribus.core.errors import Overflow
from pluribus.spaces.partitioned import words as partitioned_words
from pluribus.spaces.partitioned.member import PartitionedMember
from pluribus.spaces.partitioned.ranges import range_of
from pluribus.spaces.roster import Enter, Roster, Strike
from pluribus.spaces.templates import template_of
from pluribus.spaces.values import item_of, written_of
from pluribus.spaces.views import words as views_words
from pluribus.spaces.views.member import ViewsMember
from pluribus.spaces.watching import EVENTS_MAX
from tests.spaces.network import Network

COPIES = {"views": 0, "partitioned": 1, "copied": 2}


class Listener:
    """Fetches events of one registration, at one member after the other."""

    def __init__(self, story, me, template, lease_us=0):
        self.story = story
        self.me = me
        self.template = template_of(template)
        self.name = None
        self.made_at = None
        self.told = []
        self.unseen = []
        self.missed = self.unseen_missed = self.gaps = 0
        self.ended = self.moved = False
        self.turn = 0
        member = story.net.members[me]
        story.asked[member, member.register(self.template, lease_us, b"back", story.net.now)] = self.made

    def made(self, result):
        if result.name == (0, 0):  # the space was lost meanwhile
            self.ended = True
            return
        self.name, self.made_at = result.name, self.story.net.now
        if self.me is not None:
            self.fetch()

    def fetch(self):
        member = self.story.net.members[self.me]
        number = member.fetch(self.name, self.unseen, self.unseen_missed, False, self.story.net.now)
        self.unseen, self.unseen_missed = [], 0
        self.turn += 1
        self.story.asked[member, number] = lambda result, turn=self.turn: self.fetched(result, turn)

    def fetched(self, result, turn):
        if turn != self.turn:
            return  # it is at another member by now
        watched = result.watched
        self.told += [written_of(item) for _, item in watched.events]
        self.unseen = [*[mark for mark, _ in watched.events], *watched.gaps]
        self.unseen_missed = watched.missed
        self.missed += watched.missed
        self.gaps += watched.gap
        self.ended = watched.ended
        assert watched.ended or watched.hand_back == b"back"
        if not watched.ended:
            # It deals with the events for a while.
            self.story.net.at(0.3 * self.story.net.random.random(), lambda: turn == self.turn and self.fetch())

    def move(self, me):
        """It goes on at another member, as after a break: what was not acknowledged comes again."""
        self.me, self.moved, self.unseen, self.unseen_missed = me, True, [], 0
        self.turn += 1
        if self.name is not None and me is not None:
            self.fetch()

    def check(self, again=False):
        if self.ended or self.made_at is None:
            return
        matching = {value: at for value, at in self.story.written.items() if self.template.matches(item_of(value))}
        assert set(self.told) <= set(matching)
        assert self.moved or again or len(self.told) == len(set(self.told)), "an event was told twice"
        if not self.gaps and not self.story.lost:
            lacking = {value for value, at in matching.items() if at > self.made_at} - set(self.told)
            lacking -= self.story.unsure
            assert len(lacking) <= self.missed, f"nobody told of {lacking}"


class Story:
    def __init__(self, seed, kind, loss=0.1):
        words = views_words if kind == "views" else partitioned_words
        self.kind = kind
        self.net = Network(seed, self.make, words, loss)
        self.net.on_results = self.results
        self.asked = {}
        self.written = {}
        self.by = {}
        self.unsure = set()
        self.lost = False
        self.listeners = []

    def make(self, me, worker, holds, random):
        if self.kind == "views":
            member = ViewsMember(me, worker, holds, random)
        else:
            member = PartitionedMember(me, worker, random, COPIES[self.kind])
        member.holds = holds
        return member

    def results(self, member):
        results, member.results = member.results, []
        for result in results:
            then = self.asked.pop((member, result.request), None)
            if then is not None and self.net.members.get(member.me) is member:
                then(result)
        if self.kind == "views":
            self.lost = self.lost or member.lost > 0
        else:  # a tuple that went to an owner that was cut off is lost with that range, and so is its event
            for ranges in member.lost:
                self.unsure.update(value for value in self.written if range_of(item_of(value), 0) in ranges)
        if self.net.random.random() < 0.02:
            member.validate()

    def write(self, me, value):
        member = self.net.members[me]
        self.written[value] = self.net.now
        self.by.setdefault(member, []).append(value)
        done = member.write(item_of(value), 0, self.net.now)
        if self.kind != "views":

            def answered(result):
                self.by[member].remove(value)
                if result.unknown:
                    self.unsure.add(value)

            self.asked[member, done] = answered

    def take(self, me, template):
        member = self.net.members[me]
        self.asked[member, member.take(template_of(template), True, self.net.now)] = lambda result: None

    def renew(self, me):
        """Whoever renews the lease of a tuple tells nobody of it again."""
        member = self.net.members[me]
        mine = [value for value in self.by.get(member, []) if self.kind == "views"]
        replica = getattr(member, "replica", None)
        held = [] if replica is None else [one for one in replica.tuples.items() if written_of(one[1][0]) in mine]
        if held:
            name, (item, _) = self.net.random.choice(held)
            number = member.relet(name, item, 60_000_000, False, self.net.now)
            self.asked[member, number] = lambda result: None

    def listen(self, me, template):
        self.listeners.append(Listener(self, me, template))
        return self.listeners[-1]

    def crash(self, me):
        member = self.net.members[me]
        self.unsure.update(self.by.get(member, ()))  # nobody was told that they are kept
        self.net.crash(me)
        for listener in self.listeners:
            if listener.me == me:
                if listener.name is None:
                    listener.ended = True
                listener.move(self.net.random.choice(list(self.net.members)))

    def check(self):
        for listener in self.listeners:
            listener.check()


@pytest.mark.parametrize("kind", COPIES)
def test_every_match_is_told_once(kind):
    story = Story(1, kind, 0)
    for me in (1, 2, 3):
        story.net.enter(me, me != 3)
        story.net.run(1)
    listeners = [story.listen(me, template) for me, template in ((1, ("a", int)), (2, (str, int)), (3, ("a", 4)))]
    story.net.run(2)
    for number in range(6):
        story.write(1 + number % 3, ("ab"[number % 2], number))
        if number % 2:
            story.take(1, ("b", int))
        story.net.run(0.1)
    story.net.run(5)
    told = [sorted(listener.told) for listener in listeners]
    assert told == [[("a", 0), ("a", 2), ("a", 4)], sorted(story.written), [("a", 4)]]
    story.check()


@pytest.mark.parametrize("kind", COPIES)
def test_events_that_nobody_fetches_are_dropped_and_counted(kind, monkeypatch):
    module = "views.listeners" if kind == "views" else "partitioned.watches"
    monkeypatch.setattr(f"pluribus.spaces.{module}.EVENTS_MAX", 5)
    dropping(kind, 5)


def dropping(kind, kept=EVENTS_MAX):
    story = Story(2, kind, 0)
    for me in (1, 2):
        story.net.enter(me)
        story.net.run(1)
    listener = story.listen(1, ("a", int))
    story.net.run(1)
    listener.move(None)
    for number in range(kept + 7):
        story.write(2, ("a", number))
        story.net.run(0.02)
    told = len(listener.told)
    listener.move(1)
    story.net.run(5)
    last = [("a", number) for number in range(7, kept + 7)]
    assert (listener.told[told:], listener.missed) == (last, 7 - told)


@pytest.mark.parametrize("kind", COPIES)
def test_a_registration_is_renewed_ends_and_is_forgotten(kind):
    story = Story(3, kind, 0)
    for me in (1, 2):
        story.net.enter(me)
        story.net.run(1)
    short = Listener(story, 1, ("a", int), 2_000_000)
    kept, over = (Listener(story, 2, (str, int), 2_000_000) for _ in range(2))
    story.net.run(1)
    member = story.net.members[1]
    done = []
    for name, lease_us, ends in ((kept.name, 60_000_000, False), (over.name, 0, True)):
        story.asked[member, member.renew(name, lease_us, ends, story.net.now)] = done.append
    story.net.run(4)
    assert len(done) == 2 and short.ended and over.ended and not kept.ended
    story.write(1, ("a", 1))
    story.net.run(2)
    assert (kept.told, short.told) == ([("a", 1)], [])
    story.net.members[3] = story.net.enter(3)
    story.net.run(3)
    kept.move(3)
    story.write(1, ("a", 2))
    story.net.run(3)
    assert kept.told[-1] == ("a", 2) and not kept.gaps


@pytest.mark.parametrize("kind", ["views", "copied"])
def test_events_move_with_the_space(kind):
    moving(kind)


def moving(kind):
    """Members come and go while nobody listens: the events are all there afterwards."""
    story = Story(4, kind, 0)
    for me in (1, 2):
        story.net.enter(me)
        story.net.run(1)
    listener = story.listen(1, (str, int))
    story.net.run(1)
    listener.move(None)
    for number in range(8):
        story.write(1 + number, (f"n{number}", number))
        story.net.run(0.5)
        story.net.enter(3 + number)
        story.net.run(2)
        if number:
            story.net.crash(number)
            story.net.run(3)
    listener.move(9)
    story.net.run(3)
    assert set(listener.told) >= {(f"n{number}", number) for number in range(1, 8)}
    assert not listener.gaps and not listener.missed


def test_nothing_is_taken_for_removed_because_a_member_that_leaves_lacks_it():
    """A member is about to leave and keeps no tuples any more, when another epoch begins."""
    story = Story(9, "views", 0)
    net = story.net
    for me in (1, 2, 3):
        net.enter(me)
        net.run(1)
    listener = story.listen(1, (str, int))
    net.run(1)
    story.write(1, ("a", 1))
    net.run(1)
    leaving = net.members[3]
    net.change(Enter(3, leaving.worker, False))
    net.run(1)
    story.write(2, ("a", 2))
    net.run(1)
    net.enter(4)
    net.run(2)
    found = []
    for _ in range(2):
        member = net.members[4]
        story.asked[member, member.take(template_of(("a", int)), True, net.now)] = found.append
        net.run(1)
    assert sorted(written_of(result.item) for result in found) == [("a", 1), ("a", 2)]
    assert sorted(listener.told) == [("a", 1), ("a", 2)] and not listener.ended


def test_ranges_without_copies_move_with_their_registrations_before_the_new_owner_serves():
    story = Story(5, "partitioned", 0)
    story.net.enter(1)
    story.net.run(1)
    listener = story.listen(1, (str, int))
    fixed = story.listen(1, ("n3", int))
    story.net.run(1)
    for one in (listener, fixed):
        one.move(None)
    for number in range(6):
        story.write(1, (f"n{number}", number))
        story.net.run(0.5)
        story.net.enter(2 + number)
        story.net.run(2)
        story.write(2 + number, (f"n{number}", 10 + number))  # perhaps by a range that has just moved
        story.net.run(1)
    for one in (listener, fixed):
        one.move(4)
    story.net.run(5)
    assert sorted(listener.told) == sorted(story.written)
    assert fixed.told == [("n3", 3), ("n3", 13)]


def test_a_lost_range_is_told_as_a_gap_and_is_listened_to_again():
    story = Story(6, "partitioned", 0)
    for me in (1, 2, 3):
        story.net.enter(me)
        story.net.run(1)
    listener = story.listen(1, (str, int))
    fixed = {name: story.listen(1, (name, int)) for name in map(str, range(40))}
    story.net.run(2)
    story.crash(3)
    story.net.run(3)
    assert listener.gaps == 2, "each of the two owners of what was lost has told it once"
    lost = {name for name, one in fixed.items() if one.ended}
    assert 0 < len(lost) < 40, "registrations that stood in lost ranges only are over"
    for name in fixed:
        story.write(2, (name, 1))
    story.net.run(3)
    assert sorted(listener.told) == sorted(story.written) and listener.gaps == 2
    assert all(one.told == ([] if name in lost else [(name, 1)]) for name, one in fixed.items())


@pytest.mark.parametrize("kind", COPIES)
def test_who_comes_back_from_a_roster_that_is_gone_gives_up_what_it_had(kind):
    coming_back(kind)


def coming_back(kind):
    """The last member of a space leaves, others begin it anew, and then one comes back that was cut off before."""
    story = Story(7, kind, 0)
    net = story.net
    for me in (1, 2):
        net.enter(me)
        net.run(1)
    story.write(1, ("a", 1))
    net.run(1)
    net.cut.add(1)
    net.change(Strike([1]), but=1)
    net.run(2)
    story.take(2, ("a", int))
    net.run(1)
    net.crash(2)
    net.run(2)
    net.roster = Roster()
    net.enter(3)
    net.run(2)
    story.write(3, ("b", 2))
    net.run(1)
    net.cut.clear()
    before = net.members[1]
    net.change(Enter(1, before.worker, True, before.epoch.number, "", before.epoch.opened, before.epoch.born))
    net.run(3)
    found = []
    for template in (("a", int), ("b", int)):
        story.asked[before, before.take(template_of(template), True, net.now)] = found.append
        net.run(2)
    assert [result.item and written_of(result.item) for result in found] == [None, ("b", 2)]
    assert before.lost


@pytest.mark.parametrize("kind", COPIES)
def test_too_many_registrations_are_refused(kind, monkeypatch):
    module = "views.member" if kind == "views" else "partitioned.registry"
    monkeypatch.setattr(f"pluribus.spaces.{module}.REGISTRATIONS_MAX", 2)
    story = Story(8, kind, 0)
    for me in (1, 2):
        story.net.enter(me)
        story.net.run(1)
    member = story.net.members[1]
    done = []
    for _ in range(3):
        try:
            story.asked[member, member.register(template_of((str, int)), 0, b"", story.net.now)] = done.append
        except Overflow:
            done.append(None)
        story.net.run(2)
    refused = [one is None or one.full for one in done]
    assert refused == [False, False, True]
    for one in done[:2]:
        story.asked[member, member.renew(one.name, 0, True, story.net.now)] = lambda result: None
    story.net.run(2)
    assert story.listen(2, ("a", int)) is not None
    story.net.run(2)
    assert story.listeners[-1].made_at is not None


@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("seed", range(6))
def test_faults(kind, seed):
    faults(kind, seed)


def faults(kind, seed):
    story = Story(seed, kind)
    net = story.net
    for me in range(1, 4):
        net.enter(me)
        net.run(1)
    newcomer = 10
    for step in range(120):
        members = list(net.members)
        me = net.random.choice(members)
        dice = net.random.random()
        if dice < 0.06 and len(story.listeners) < 8:
            story.listen(me, net.random.choice([("a", int), ("b", int), (str, int)]))
        elif dice < 0.55:
            story.write(me, (net.random.choice("ab"), step))
        elif dice < 0.75:
            story.take(me, net.random.choice([("a", int), (str, int)]))
        elif dice < 0.80:
            story.renew(me)
        elif dice < 0.84 and story.listeners:
            listener = net.random.choice(story.listeners)
            if listener.name is not None:
                listener.move(me)
        elif dice < 0.87 and len(members) < 6:
            newcomer += 1
            net.enter(newcomer, net.random.random() < 0.8)
        elif dice < 0.90 and len(members) > 3:
            story.crash(me)
        elif dice < 0.93:
            net.exclude(me)
        net.run(0.3 * net.random.random())
    net.run(30)
    story.check()
    return story
