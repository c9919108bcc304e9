"""Member synchronisation: who asks, who answers, who keeps silent; and everybody has the same in the end."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pluribus.conversations import history as history_of
from pluribus.conversations import synchronising
from pluribus.conversations.synchronising import ASKERS_MAX, SUMMARY_S, TRANSITIONS, VAIN_MAX, SynchronisingState
from pluribus.conversations.words import POSITION_MAX, Answer, Request, Said, encode, unpacked
from pluribus.core.intervals import Intervals
from tests.conversations.hall import Hall, Talker, entry
from tests.conversations.test_joining import Walked


def same(*talkers: Talker) -> bool:
    return len({tuple(talker.history.identities()) for talker in talkers}) == 1


def test_every_state_of_the_figure_is_reached_and_left(monkeypatch):
    """By the stories below, and not on paper alone."""
    table = Walked(TRANSITIONS)
    monkeypatch.setattr(synchronising, "TRANSITIONS", table)
    test_a_joiner_gets_everything_and_the_group_sends_each_message_once()
    test_the_newest_request_wins_and_a_repeated_one_starts_nothing()
    test_an_answer_before_its_request_is_used_and_not_repeated()
    assert table.taken == set(TRANSITIONS)
    assert {state for state, _ in TRANSITIONS} == set(SynchronisingState) == set(TRANSITIONS.values())


def test_a_joiner_gets_everything_and_the_group_sends_each_message_once():
    a, b, c = Talker(1), Talker(2), Talker(3)
    hall = Hall(a, b, c)
    hall.apart = {frozenset((1, 3)), frozenset((2, 3))}
    last = None
    for number in range(200):
        last = hall.say(1 + number % 2, last)
        hall.run(0.05)
    hall.apart.clear()
    hall.answered.clear()
    c.sync.begin(hall.now)
    hall.run(5, step=0.01)
    assert same(a, b, c) and len(c.history) == 200
    assert len(hall.answered) <= 1.2 * 200
    assert c.delivered[:3] == [(1, 0), (2, 0), (1, 1)]


def test_without_suppression_nothing_is_wrong_and_everything_is_sent_many_times(monkeypatch):
    """It is a cost, which is counted, and no error."""
    monkeypatch.setattr("pluribus.conversations.synchronising.identities_of", lambda entries: {})
    talkers = [Talker(me) for me in (1, 2, 3, 4)]
    hall = Hall(*talkers[:3])
    for _ in range(30):
        hall.say(1)
    hall.run(1)
    late = hall.talkers[4] = talkers[3]
    hall.answered.clear()
    late.sync.begin(hall.now)
    hall.run(5, step=0.01)
    assert same(*talkers) and len(hall.answered) >= 3 * 30
    assert sum(talker.sync.answered for talker in talkers) == len(hall.answered)


def test_halves_that_talked_apart_both_get_what_the_other_has():
    a, b, c, d = (Talker(me) for me in (1, 2, 3, 4))
    hall = Hall(a, b, c, d)
    hall.apart = {frozenset((one, other)) for one in (1, 2) for other in (3, 4)}
    for _ in range(30):
        for me in (1, 3, 4):
            hall.say(me)
        hall.run(0.05)
    hall.apart.clear()
    a.sync.newcomer(hall.now)  # nobody else has noticed
    hall.run(30)
    assert same(a, b, c, d) and len(a.history) == 90


def test_identities_only_members_answer_for_no_body_and_suppress_nobody():
    a, b, light = Talker(1), Talker(2), Talker(3, identities_only=True)
    hall = Hall(a, light)
    for _ in range(20):
        hall.say(1)
    hall.run(1)
    assert len(light.history) == 20 and light.sync.answered == 0
    hall.talkers[2] = b
    b.sync.begin(hall.now)
    hall.run(5)
    assert len(b.history) == 20 and light.sync.answered == 0
    del hall.talkers[1]
    late = hall.talkers[4] = Talker(4)
    late.sync.begin(hall.now)
    hall.run(5)
    assert len(late.history) == 20, "b has the bodies"


def test_the_newest_request_wins_and_a_repeated_one_starts_nothing():
    a = Talker(1)
    for number in range(3):
        a.sync.say(entry(1, number), 0.0)
    a.sync.out.clear()
    a.sync.heard(9, Request(2, 0, 0, (1 << 63) - 1, []), 0.0)
    a.sync.heard(9, Request(1, 0, 0, (1 << 63) - 1, []), 0.0)
    a.sync.heard(9, Request(2, 0, 0, (1 << 63) - 1, []), 0.0)
    a.sync.tick(1.0)
    answers = [word for word in a.sync.out if isinstance(word, Answer)]
    assert [(answer.number, len(answer.entries)) for answer in answers] == [(2, 3)]
    a.sync.heard(9, Request(3, 0, 0, (1 << 63) - 1, [(1, [(0, 1)])]), 2.0)
    a.sync.tick(3.0)
    assert [found.id for found in a.sync.out[-1].entries] == [(1, 2)]
    said = len(a.sync.out)
    a.sync.heard(9, Request(1, 0, 0, (1 << 63) - 1, []), 3.5)
    a.sync.tick(5.0)
    assert len(a.sync.out) == said, "an old one that comes when nothing is counted is discarded, too"
    a.sync.validate()


def test_a_flood_of_requests_keeps_no_answer_from_others():
    a = Talker(1)
    a.sync.say(entry(1, 0), 0.0)
    a.sync.out.clear()
    a.sync.heard(9, Request(1, 0, 0, (1 << 63) - 1, []), 0.0)
    for part in range(3 * ASKERS_MAX):
        a.sync.heard(666, Request(1, part, 0, (1 << 63) - 1, []), 0.0)
    a.sync.validate()
    a.sync.tick(1.0)
    assert 9 in {word.asker for word in a.sync.out if isinstance(word, Answer)}


def test_an_answer_before_its_request_is_used_and_not_repeated():
    a = Talker(1)
    entries = [entry(2, number) for number in range(4)]
    for one in entries[:2]:
        a.sync.heard(2, Said([one]), 0.0)
    a.sync.heard(3, Answer(9, 1, 0, entries[1:]), 0.0)
    assert len(a.history) == 4 and a.sync.stats()["repositories"] == 0
    a.sync.heard(9, Request(1, 0, 0, (1 << 63) - 1, []), 0.1)
    a.sync.tick(1.0)
    answers = [word for word in a.sync.out if isinstance(word, Answer)]
    assert [[found.id for found in answer.entries] for answer in answers] == [[(2, 0)]]


def test_a_request_of_many_writers_is_said_in_parts_that_together_say_all():
    a = Talker(1)
    for writer in range(10, 400):
        a.sync.heard(writer, Said([entry(writer, 0)]), 0.0)
    a.sync.begin(0.0)
    a.sync.tick(0.0)
    words = [word for word in a.sync.out if isinstance(word, Request)]
    assert len(words) > 1 and [word.part for word in words] == list(range(len(words)))
    assert words[0].low == 0 and words[-1].high == (1 << 63) - 1
    assert all(one.high + 1 == other.low for one, other in pairwise(words))
    assert {writer for word in words for writer in unpacked(word.have)} == a.history.have.keys()


def test_who_has_the_same_as_a_summary_in_many_words_need_not_say_its_own():
    a, b, c = Talker(1), Talker(2), Talker(3)
    for writer in range(10, 400):
        for talker in (a, b, c):
            if talker is not c or writer != 200:
                talker.sync.heard(writer, Said([entry(writer, 0)]), 0.0)
    for talker in (a, b, c):
        talker.sync.begin(0.0)
    a.sync._request()
    words = [word for word in a.sync.out if isinstance(word, Request)]
    assert len(words) > 2
    for word in words:
        b.sync.heard(1, word, 1.0)
        c.sync.heard(1, word, 1.0)
    assert not b.sync._first and b.sync._summary_s > SUMMARY_S
    assert c.sync._first and c.sync._summary_s == SUMMARY_S, "it lacks something"
    late = Talker(4)
    for writer in range(10, 400):
        late.sync.heard(writer, Said([entry(writer, 0)]), 0.0)
    late.sync.begin(0.0)
    for word in words[1:]:
        late.sync.heard(1, word, 1.0)
    assert late.sync._first, "it has not heard the whole"
    for talker in (a, b, c, late):
        talker.sync.validate()


@pytest.mark.parametrize("seed", range(6))
def test_of_a_writer_with_too_many_gaps_all_keep_the_same_and_nobody_asks_for_the_rest(seed):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(history_of, "SPANS_MAX", 8)
        flooded(Random(seed))


def flooded(random):
    hall = Hall(*(Talker(me) for me in (1, 2, 3)))
    hall.apart = {frozenset(pair) for pair in ((1, 2), (1, 3), (2, 3))}
    numbers = random.sample(range(400), 60)
    for talker in hall.talkers.values():
        talker.sync.begin(hall.now)
        for number in random.sample(numbers, 50):
            talker.sync.heard(9, Said([entry(9, number)]), hall.now)
            if random.random() < 0.3:
                talker.sync.heard(8, Said([entry(8, number, (9, number))]), hall.now)
        hall.flush()
    hall.apart.clear()
    hall.run(120)
    one, *others = [talker.history for talker in hall.talkers.values()]
    for other in others:
        assert other.identities() == one.identities() and other.have == one.have
    assert len(one.have[9]) == len(one.have[8]) == 8
    assert all(len(talker.delivered) == len(set(talker.delivered)) for talker in hall.talkers.values())
    before = len(hall.answered)
    hall.run(600, 0.5)
    assert len(hall.answered) == before, "what nobody keeps is sent no more"
    for talker in hall.talkers.values():
        talker.sync.validate()


def test_the_identities_of_one_writer_are_said_in_parts_that_together_say_all(monkeypatch):
    for spans_max in (1_024, 100):  # with 100 the writer is full
        monkeypatch.setattr(history_of, "SPANS_MAX", spans_max)
        a = Talker(1)
        a.sync.heard(5, Said([entry(5, 0)]), 0.0)
        for number in range(300):
            a.sync.heard(9, Said([entry(9, 3 * number)]), 0.0)
        a.sync.heard(12, Said([entry(12, 0)]), 0.0)
        a.sync.begin(0.0)
        a.sync.tick(0.0)
        words = [word for word in a.sync.out if isinstance(word, Request)]
        assert all(len(encode(word)) <= a.sync.piece_bytes for word in words)
        assert [word.part for word in words] == list(range(len(words)))
        assert (words[0].low, words[0].high, words[-1].low) == (0, 8, 10)
        parts = words[1:-1]
        assert len(parts) > 2 and all((word.low, word.high) == (9, 9) for word in parts)
        assert parts[0].first == 0 and all(one.last + 1 == other.first for one, other in pairwise(parts))
        assert parts[-1].last == (POSITION_MAX if spans_max > 300 else a.history.have[9].end)
        said = Intervals(span for word in parts for _, spans in word.have for span in spans)
        assert said == a.history.have[9]
        b = Talker(2)
        for word in words:
            b.sync.heard(1, word, 0.0)
        assert b.sync._wanted == a.history.have


def test_forged_messages_are_not_believed():
    a = Talker(1)
    a.sync.heard(2, Said([entry(3, 0), entry(2, 0)]), 0.0)
    a.sync.heard(2, Answer(1, 1, 0, [entry(1, 7)]), 0.0)
    assert a.history.identities() == [(2, 0)] and a.sync.forged == 2


def test_what_others_claim_to_have_is_wanted_within_bounds(monkeypatch):
    monkeypatch.setattr(synchronising, "WANTED_MAX", 50)
    a = Talker(1)
    for number in range(100):
        claimed = [(writer, [(at, at) for at in range(0, 20, 2)]) for writer in range(100 * number, 100 * number + 20)]
        a.sync.heard(666, Request(number + 1, 0, 0, (1 << 63) - 1, claimed), float(number))
    assert sum(len(numbers) for numbers in a.sync._wanted.values()) == 50
    a.sync.heard(666, Answer(1, 1, 0, [entry(0, at) for at in range(19)]), 100.0)
    a.sync.tick(200.0)
    a.sync.heard(7, Request(1, 0, 0, (1 << 63) - 1, [(70_000, [(0, 3)])]), 201.0)
    assert 70_000 in a.sync._wanted, "there is room again"
    a.sync.validate()


def test_a_parent_that_never_comes_is_asked_for_less_and_less_and_hinders_nothing():
    a, b = Talker(1), Talker(2)
    hall = Hall(a, b)
    for talker in (a, b):
        talker.sync.begin(hall.now)
    hall.run(30)
    hall.say(2, (77, 5))
    hall.run(400, step=0.2)
    assert (2, 0) in a.delivered and a.orphans == {(2, 0)}
    asked = a.sync.requests
    assert asked < 3 * VAIN_MAX + 30
    hall.apart = {frozenset((1, 2))}
    hall.say(2)
    hall.run(1)
    hall.apart.clear()
    hall.say(2)
    hall.run(3)
    assert len(a.history) == 3, "a new gap is repaired at once"


class Room(RuleBasedStateMachine):
    """Four members, a network that loses, repeats and reorders words, members that go and come back, halves that part.
    The oracle is the set of all messages whose writer still has them."""

    @initialize(light=st.booleans())
    def begin(self, light: bool) -> None:
        self.hall = Hall(*(Talker(me) for me in (1, 2, 3)), Talker(4, identities_only=light))
        self.light = light
        self.said: dict[tuple[int, int], tuple[int, int] | None] = {}
        self.away: dict[int, Talker] = {}
        for talker in self.hall.talkers.values():
            talker.sync.begin(self.hall.now)

    @rule(me=st.sampled_from((1, 2, 3, 4)), data=st.data())
    def say(self, me: int, data: st.DataObject) -> None:
        if me in self.hall.talkers:
            known = self.hall.talkers[me].delivered
            parent = data.draw(st.none() | st.sampled_from(known) if known else st.none())
            self.said[self.hall.say(me, parent)] = parent

    @precondition(lambda self: self.hall.waiting)
    @rule(place=st.integers(0, 1 << 16), how=st.sampled_from(("arrive", "arrive", "arrive", "twice", "lose")))
    def network(self, place: int, how: str) -> None:
        at = place % len(self.hall.waiting)
        if how == "lose":
            self.hall.waiting.pop(at)
        else:
            self.hall.deliver(at, keep=how == "twice")

    @rule(seconds=st.floats(0.01, 30))
    def wait(self, seconds: float) -> None:
        self.hall.now += seconds
        self.hall.tick()

    @rule(me=st.sampled_from((2, 3, 4)))
    def go(self, me: int) -> None:
        if me in self.hall.talkers:
            self.away[me] = self.hall.talkers.pop(me)

    @rule(me=st.sampled_from((2, 3, 4)))
    def come_back(self, me: int) -> None:
        if me in self.away:
            self.hall.talkers[me] = self.away.pop(me)
            self.hall.talkers[me].sync.begin(self.hall.now)

    @rule(pairs=st.sets(st.sampled_from([frozenset((a, b)) for a in (1, 2) for b in (3, 4)])))
    def part(self, pairs: set[frozenset[int]]) -> None:
        self.hall.apart = pairs

    @invariant()
    def in_order(self) -> None:
        for talker in self.hall.talkers.values():
            talker.sync.validate()
            seen: set[tuple[int, int]] = set()
            for message in talker.delivered:
                assert message not in seen, "nothing twice"
                parent = self.said[message]
                assert parent is None or parent in seen or message in talker.orphans
                seen.add(message)

    def teardown(self) -> None:
        if not hasattr(self, "hall"):
            return
        self.hall.talkers |= self.away
        self.hall.apart.clear()
        for talker in self.hall.talkers.values():
            talker.sync.begin(self.hall.now)
        self.hall.run(60, step=0.1)
        full = [talker for talker in self.hall.talkers.values() if not talker.history.identities_only]
        held = set().union(*(talker.history.identities() for talker in full))
        assert {message for message in self.said if message[0] in (1, 2, 3)} <= held
        for talker in self.hall.talkers.values():
            assert set(talker.history.identities()) >= held
            assert set(talker.delivered) == set(talker.history.identities())


Room.TestCase.settings = settings(stateful_step_count=40, max_examples=40, deadline=None)
TestRoom = Room.TestCase
