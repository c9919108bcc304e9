"""The forest of a conversation: delivery, orphans, circles, retention, a tree that depends on messages alone."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.conversations import history as module
from pluribus.conversations.history import PATIENCE_S, History
from pluribus.core.intervals import Intervals
from tests.conversations.hall import entry


def added(found: History, *entries, now: float = 0.0) -> list[tuple[int, int]]:
    return [one.entry.id for given_entry in entries for one in found.add(given_entry, now)]


def shown(found: History) -> list[tuple[int, tuple[int, int]]]:
    return [(depth, one.id) for depth, one in found.tree().walk()]


def test_an_answer_is_delivered_after_its_question_and_nothing_else_waits():
    found = History()
    assert added(found, entry(2, 5, (1, 0)), entry(3, 0), entry(2, 6, (2, 5))) == [(3, 0)]
    assert found.waiting == 2 and not found.whole
    assert added(found, entry(1, 0)) == [(1, 0), (2, 5), (2, 6)]
    assert shown(found) == [(0, (1, 0)), (1, (2, 5)), (2, (2, 6)), (0, (3, 0))]
    found.validate()


def test_the_thesis_example_of_questions_about_two_towns():
    delhi, chennai = entry(3, 0, body="Did you visit Delhi?", at=1), entry(3, 1, body="Did you visit Chennai?", at=2)
    no, yes = entry(1, 0, (3, 1), "No", at=3), entry(2, 0, (3, 0), "Yes", at=3)
    for order in ((delhi, chennai, no, yes), (yes, no, chennai, delhi), (no, delhi, yes, chennai)):
        found = History()
        added(found, *order)
        assert shown(found) == [(0, (3, 0)), (1, (2, 0)), (0, (3, 1)), (1, (1, 0))]


def test_a_message_is_known_by_its_identity_and_the_first_counts():
    found = History()
    added(found, entry(1, 0, body="first"))
    assert added(found, entry(1, 0, body="first"), entry(1, 0, body="forged")) == []
    assert found.get((1, 0)).body == "first" and found.conflicts == 1


def test_an_orphan_is_delivered_late_and_found_under_its_parent_when_that_comes():
    found = History()
    added(found, entry(2, 0, (1, 0)), entry(3, 0, (2, 0)))
    assert found.due_at == PATIENCE_S and found.tick(PATIENCE_S - 1) == []
    assert [(one.entry.id, one.orphan) for one in found.tick(PATIENCE_S)] == [((2, 0), True), ((3, 0), False)]
    assert found.due_at is None
    assert added(found, entry(1, 0)) == [(1, 0)]
    assert shown(found) == [(0, (1, 0)), (1, (2, 0)), (2, (3, 0))]
    found.validate()


def test_messages_that_answer_each_other_are_shown_once():
    found = History()
    added(found, entry(1, 0, (2, 0)), entry(2, 0, (1, 0)), entry(3, 0, (3, 0)), entry(4, 0, (2, 0)))
    now = 0.0
    while found.waiting:
        now += PATIENCE_S
        found.tick(now)
        assert now < 20 * PATIENCE_S
    assert shown(found) == [(0, (1, 0)), (1, (2, 0)), (2, (4, 0)), (0, (3, 0))]


def test_a_long_chain_backwards_needs_no_stack():
    found = History()
    for number in range(3_000, 0, -1):
        assert added(found, entry(1, number, (1, number - 1))) == []
    assert len(added(found, entry(1, 0))) == 3_001
    assert shown(found)[-1] == (3_000, (1, 3_000))


def test_a_crowd_of_answers_waits_within_bounds_and_comes_under_its_question():
    found = History()
    for number in range(60_000):
        found.add(entry(2, number, (1, 0)), 0.0)
    assert found.waiting <= module.WAITING_MAX and found.orphans >= 60_000 - module.WAITING_MAX
    assert not any(found.missing().keys() - {1}), "one question is missing, whoever answers it"
    added(found, entry(1, 0))
    (question,) = found.tree().answers
    assert len(question.answers) == 60_000 and found.waiting == 0
    found.validate()


def test_who_writes_a_flood_loses_its_own():
    found = History(messages_max=100)
    added(found, *(entry(1, number) for number in range(40)))
    added(found, *(entry(2, number) for number in range(100_000 // 50)))
    assert len(found) <= 100 and sum(identity[0] == 1 for identity in found.identities()) == 40
    assert found.forgotten and (2, 0) in found and found.get((2, 0)) is None
    assert added(found, entry(2, 0), entry(5, 0, (2, 0))) == [(5, 0)], "what was forgotten counts as delivered"
    found.validate()


def test_writers_gaps_waiting_and_clocks_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "WRITERS_MAX", 5)
    monkeypatch.setattr(module, "SPANS_MAX", 4)
    monkeypatch.setattr(module, "WAITING_MAX", 32)
    found = History()
    added(found, *(entry(1, 2 * number) for number in range(10)))
    assert len(found) == 4 and found.refused == 6
    added(found, *(entry(writer, 0, (9, writer)) for writer in range(2, 9)))
    assert len(found.have) == 5
    added(found, *(entry(2, number, (9, 9)) for number in range(1, 100)))
    assert found.waiting <= 32 and found.orphans > 0
    for at in (float("nan"), float("inf"), -1.0):
        assert added(found, entry(1, 1, at=at)) == []
    found.validate()


def test_a_message_below_takes_the_place_of_the_highest_and_is_not_delivered_twice(monkeypatch):
    monkeypatch.setattr(module, "SPANS_MAX", 3)
    found = History()
    added(found, *(entry(1, number) for number in (4, 8, 12, 13)), entry(2, 0, (1, 13)), entry(1, 20, (3, 3)))
    assert (1, 20) not in found and found.refused == 1
    assert added(found, entry(1, 0)) == [(1, 0)] and found.have[1].spans() == [(0, 0), (4, 4), (8, 8)]
    assert added(found, entry(2, 1, (1, 12))) == [(2, 1)], "its parent was delivered"
    assert found.get((1, 13)) is None and [node.entry.id for node in found.tree().answers[-2:]] == [(2, 0), (2, 1)]
    assert found.wanted({1: Intervals([(1, 30)]), 5: Intervals([(0, 9)])}) == {
        1: Intervals([(1, 9)]),
        5: Intervals([(0, 9)]),
    }
    added(found, *(entry(1, number) for number in (1, 2, 3)))
    assert not found.is_full(1) and added(found, entry(1, 12)) == [], "it was delivered before"
    assert found.get((1, 12)) is not None
    found.validate()


def test_a_message_that_waits_gives_way_too(monkeypatch):
    monkeypatch.setattr(module, "SPANS_MAX", 2)
    found = History()
    added(found, entry(1, 4), entry(1, 8, (2, 0)), entry(1, 6))
    assert found.waiting == 0 and found.have[1].spans() == [(4, 4), (6, 6)]
    assert added(found, entry(2, 0)) == [(2, 0)]
    found.forget_known({3: Intervals([(2, 3), (8, 9)])})
    added(found, entry(3, 0))
    assert found.have[3].spans() == [(0, 0), (2, 3)] and found.lost[3].spans() == [(2, 3)]
    found.validate()


def test_a_member_that_keeps_identities_alone_has_no_bodies_to_give():
    found = History(identities_only=True)
    delivered = found.add(entry(1, 0, body="hello"), 0.0)
    assert delivered[0].entry.body == "hello" and found.get((1, 0)).body is None
    assert 0 in found.lost[1]


identities = st.tuples(st.integers(1, 4), st.integers(0, 8))


@settings(max_examples=200)
@given(
    st.dictionaries(identities, st.none() | identities, max_size=25), st.randoms(use_true_random=False), st.randoms()
)
def test_the_same_messages_make_the_same_tree_in_whatever_order(parents, one, other):
    trees = []
    for random in (one, other):
        order = [entry(*identity, parent) for identity, parent in parents.items()]
        random.shuffle(order)
        found = History()
        seen = added(found, *order)
        for message in seen:
            before = seen[: seen.index(message)]
            assert parents[message] in (None, message, *before), "nothing before its parent"
        now = 0.0
        while found.waiting:
            now += PATIENCE_S
            found.tick(now)
        found.validate()
        assert sorted(one_id for _, one_id in shown(found)) == sorted(parents)
        trees.append(shown(found))
    assert trees[0] == trees[1]
    for depth, message in trees[0]:
        assert depth or parents[message] not in parents or parents[message] == message or _circular(parents, message)


def _circular(parents, message) -> bool:
    seen = set()
    while message is not None and message not in seen:
        seen.add(message)
        message = parents.get(message)
    return message is not None


def test_a_circle_is_cut_at_its_least_message_and_what_hangs_below_it_stays():
    found = History()
    added(found, entry(5, 0, (6, 0)), entry(6, 0, (7, 0)), entry(7, 0, (5, 0)), entry(1, 0, (6, 0)))
    for seconds in range(1, 20):
        found.tick(seconds * PATIENCE_S)
    assert shown(found) == [(0, (5, 0)), (1, (7, 0)), (2, (6, 0)), (3, (1, 0))]
