"""How a conversation lies in a store: what was written is there again, also while the log is written anew."""

import pytest

from pluribus.conversations import kept
from pluribus.conversations.history import PATIENCE_S, History
from pluribus.conversations.kept import KeptConversation
from pluribus.core.ports import Append, Bounds, Put, Restart
from tests.conversations.hall import entry


class OneLog:
    """A store of one log, in memory, that does at once what it is given."""

    def __init__(self):
        self.start, self.rows, self.values = 0, [], {}

    def write(self, changes):
        for change in changes:
            match change:
                case Put():
                    self.values[change.key] = change.value
                case Restart():
                    self.start, self.rows = change.at, []
                case Append():
                    self.rows += change.rows

    def bounds(self, log):
        return Bounds(self.start, self.end(log))

    def end(self, log):
        return self.start + len(self.rows)

    def read(self, log, start, stop):
        return self.rows[start - self.start : stop - self.start]

    def get(self, key):
        return self.values.get(key)

    def reloaded(self):
        found = History()
        KeptConversation(self, "x").load(found)
        return found


@pytest.fixture(autouse=True)
def written_anew_soon(monkeypatch):
    monkeypatch.setattr(kept, "SPARE_ENTRIES", 0)


def test_a_message_is_on_disk_when_it_was_written_whatever_is_forgotten_meanwhile():
    """One's own message comes into the history when it is on disk: a log that is written anew just then holds it."""
    store, history = OneLog(), History(messages_max=4)
    conversation = KeptConversation(store, "x")
    for number in range(30):
        store.write(conversation.changes([entry(1, number)], history))
        assert store.reloaded().get((1, number)) is not None
        history.add(entry(1, number), 0.0)
    assert store.start > 0 and len(store.rows) < 20, "it was written anew"
    assert set(history.identities()) <= set(store.reloaded().identities())
    assert (1, 3) in store.reloaded() and store.reloaded().get((1, 3)) is None, "what was forgotten stays known"


def test_messages_that_are_on_their_way_together_are_all_kept():
    store, history = OneLog(), History(messages_max=4)
    conversation = KeptConversation(store, "x")
    for number in range(20):
        store.write(conversation.changes([entry(1, number)], history))
        history.add(entry(1, number), 0.0)
    own = [entry(2, number) for number in range(12)]
    for one in own:  # none of them is in the history yet
        store.write(conversation.changes([one], history))
    assert {one.id for one in own} <= set(store.reloaded().identities())
    conversation.gave_up(own[0])
    for one in own[1:]:
        history.add(one, 0.0)
    store.write(conversation.changes([entry(3, 0)], history))
    assert list(conversation._under_way) == [(3, 0)], "nothing is remembered for ever"


def test_messages_are_read_in_the_order_in_which_they_came_also_from_a_log_that_was_written_anew():
    store, history = OneLog(), History(messages_max=8)
    conversation = KeptConversation(store, "x")
    for number in range(40):
        one = entry(9 - number % 3, number // 3)
        history.add(one, 0.0)
        store.write(conversation.changes([one], history))
    assert store.start > 0, "it was written anew"
    came = [one.id for one in history.entries()]
    assert [one.id for one in store.reloaded().entries() if one.id in came] == came


def test_a_kept_answer_whose_question_is_missing_is_there_at_once_and_is_not_delivered_again():
    store, history = OneLog(), History()
    conversation = KeptConversation(store, "x")
    for one in (entry(2, 0, (1, 0)), entry(3, 0, (2, 0)), entry(4, 0, (5, 0)), entry(5, 0, (4, 0))):
        history.add(one, 0.0)
        store.write(conversation.changes([one], history))
    assert history.waiting == 4
    found = store.reloaded()
    assert [one.id for one in found.entries()] == [(2, 0), (3, 0), (4, 0), (5, 0)]
    assert found.due_at is None and found.tick(PATIENCE_S) == []
    assert [one.entry.id for one in found.add(entry(1, 0), 1.0)] == [(1, 0)]
    assert [depth for depth, _ in found.tree().walk()][:3] == [0, 1, 2]
    found.validate()


def test_a_member_without_bodies_knows_its_tree_again_also_from_a_log_that_was_written_anew():
    store, history = OneLog(), History(messages_max=8, identities_only=True)
    conversation = KeptConversation(store, "x")
    for number in range(40):
        one = entry(1, number, (1, number - 1) if number % 2 else None)
        history.add(one, 0.0)
        store.write(conversation.changes([one], history))
    assert store.start > 0, "it was written anew"
    for light in (True, False):
        found = History(identities_only=light)
        KeptConversation(store, "x").load(found)
        assert set(history.identities()) <= set(found.identities())
        assert all(number in found.lost[1] for number in range(20)), "bodies that nobody can be given"
        found.validate()
