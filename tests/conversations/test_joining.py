"""Group join and leave: lists, joins and leaves, refusals, counters; the story of chapter 5; floods."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pluribus.conversations import joining
from pluribus.conversations.joining import JOINED, REFUSED, TRANSITIONS, Joining, JoiningState
from pluribus.conversations.words import (
    COUNTER_MAX,
    MEMBERS_MAX,
    GroupInfo,
    Groups,
    Join,
    Leave,
    Row,
    decode_lobby,
    encode,
)
from pluribus.core.errors import BadInput, Overflow
from tests.conversations.hall import Hall, Talker


def known(talker: Talker) -> dict[str, tuple[str, list[str]]]:
    return {gid: (group.description, group.info().members) for gid, group in talker.lobby.groups.items()}


def invited(talker: Talker) -> list[str]:
    found = [info.gid for info in talker.lobby.invitations]
    talker.lobby.invitations.clear()
    return found


def arrives(hall: Hall, talker: Talker) -> Talker:
    hall.talkers[talker.me] = talker
    talker.lobby.enter(hall.now)
    hall.run(2)
    return talker


class Walked(dict):
    """A table of transitions that remembers which were taken."""

    def __init__(self, table):
        super().__init__(table)
        self.taken = set()

    def __getitem__(self, key):
        self.taken.add(key)
        return super().__getitem__(key)


def test_every_state_of_the_figure_is_reached_and_left(monkeypatch):
    """By the stories below, and not on paper alone."""
    table = Walked(TRANSITIONS)
    monkeypatch.setattr(joining, "TRANSITIONS", table)
    test_the_story_of_chapter_five()
    test_who_comes_back_is_not_expelled_by_a_list_that_has_it_among_the_left()
    test_who_forgot_its_counter_and_finds_itself_among_the_left_says_that_it_is_in()
    test_who_left_and_finds_itself_in_by_an_earlier_life_leaves_again()
    assert table.taken == set(TRANSITIONS)
    assert {state for state, _ in TRANSITIONS} == set(JoiningState) == set(TRANSITIONS.values())


def test_the_story_of_chapter_five():
    hall = Hall()
    a = arrives(hall, Talker(1))
    a.lobby.create("G1", "first", 1.0, hall.now)
    b = arrives(hall, Talker(2))
    assert invited(b) == ["G1"]
    b.lobby.join("G1", hall.now)
    c = arrives(hall, Talker(3))
    assert invited(c) == ["G1"]
    c.lobby.refuse("G1")
    c.lobby.create("G2", "second", 2.0, hall.now)
    hall.run(1)
    assert invited(a) == invited(b) == ["G2"] and invited(c) == []
    del hall.talkers[1], hall.talkers[2]
    d = arrives(hall, Talker(4))
    assert invited(d) == ["G1", "G2"], "conversations are known, not only joined"
    d.lobby.join("G2", hall.now)
    hall.run(1)
    arrives(hall, a)
    for talker in (a, c, d):
        assert known(talker) == {"G1": ("first", ["p1", "p2"]), "G2": ("second", ["p3", "p4"])}
    assert c.lobby.groups["G1"].standing == REFUSED


def test_a_refused_conversation_is_heard_of_again_after_the_next_advertisement():
    hall = Hall()
    a, b = arrives(hall, Talker(1)), arrives(hall, Talker(2))
    a.lobby.create("G", "", 1.0, hall.now)
    hall.run(1)
    assert invited(b) == ["G"]
    b.lobby.refuse("G")
    a.lobby.enter(hall.now)
    hall.run(2)
    assert invited(b) == []
    b.lobby.enter(hall.now)
    hall.run(2)
    assert invited(b) == ["G"]


def test_who_comes_back_is_not_expelled_by_a_list_that_has_it_among_the_left():
    hall = Hall()
    a, b, c = (arrives(hall, Talker(me)) for me in (1, 2, 3))
    a.lobby.create("G", "", 1.0, hall.now)
    hall.run(1)
    b.lobby.join("G", hall.now)
    hall.run(1)
    b.lobby.leave("G", hall.now)
    hall.run(1)
    assert known(c)["G"][1] == ["p1"]
    del hall.talkers[3]
    b.lobby.enter(hall.now)
    hall.run(2)
    b.lobby.join("G", hall.now)
    hall.run(1)
    arrives(hall, c)  # it still believes that b left
    assert known(a)["G"][1] == known(b)["G"][1] == known(c)["G"][1] == ["p1", "p2"]


def test_who_forgot_its_counter_and_finds_itself_among_the_left_says_that_it_is_in():
    fresh = Joining("p1", Talker(1).lobby._random)
    fresh.create("G", "", 1.0, 0.0)
    fresh.out.clear()
    fresh.heard(2, Groups([GroupInfo("G", "", 1.0, [Row("p1", 7, False)], 1)]), 0.0)
    assert list(fresh.out) == [Join("G", "p1", 8)]
    fresh.heard(2, Leave("G", "p1", 9), 0.0)
    assert fresh.out[-1] == Join("G", "p1", 10)
    fresh.validate()


def test_who_left_and_finds_itself_in_by_an_earlier_life_leaves_again():
    """The store of the earlier life is gone, so the later one began to count anew."""
    fresh = Joining("p1", Talker(1).lobby._random)
    for gid in ("G", "H", "I"):
        fresh.create(gid, "", 1.0, 0.0)
    fresh.leave("G", 0.0)
    fresh.leave("I", 0.0)
    fresh.out.clear()
    earlier = [
        GroupInfo(gid, "", 1.0, [Row("p1", 7, here)], 1) for gid, here in (("G", True), ("H", False), ("I", True))
    ]
    fresh.heard(2, Groups(earlier), 0.0)
    assert list(fresh.out) == [Leave("G", "p1", 8), Join("H", "p1", 8), Leave("I", "p1", 8)]
    fresh.heard(2, Groups(earlier), 0.0)
    assert len(fresh.out) == 3, "it is no news"
    fresh.heard(3, Groups([GroupInfo("J", "", 1.0, [Row("p1", 4, True)], 1)]), 0.0)
    assert len(fresh.out) == 3, "it has not decided"
    fresh.refuse("J")
    assert fresh.out[-1] == Leave("J", "p1", 5) and fresh.groups["J"].standing == REFUSED
    fresh.validate()


def test_answers_to_an_advertisement_are_said_once_and_in_pieces():
    hall = Hall()
    talkers = [arrives(hall, Talker(me)) for me in range(1, 7)]
    for number in range(40):
        talkers[0].lobby.create(f"group {number:02}", "d" * 100, float(number), hall.now)
    hall.run(1)
    said = []
    for talker in talkers:
        heard = talker.lobby.heard
        talker.lobby.heard = lambda sender, word, now, heard=heard: (
            said.append((sender, word)),
            heard(sender, word, now),
        )
    late = arrives(hall, Talker(9))
    assert len(late.lobby.groups) == 40
    lists = {(sender, word.groups[0].gid) for sender, word in said if isinstance(word, Groups)}
    assert 4 <= len(lists) <= 10, "not by each of six"


def test_a_conversation_that_two_create_apart_is_one_with_the_older_description():
    hall = Hall()
    a, b = arrives(hall, Talker(1)), arrives(hall, Talker(2))
    hall.apart = {frozenset((1, 2))}
    a.lobby.create("G", "of a", 5.0, hall.now)
    b.lobby.create("G", "of b", 4.0, hall.now)
    hall.run(1)
    hall.apart.clear()
    a.lobby.newcomer(hall.now)
    hall.run(3)
    assert known(a) == known(b) == {"G": ("of b", ["p1", "p2"])}


def test_a_flood_of_invitations_is_bounded_and_hurts_nobody(monkeypatch):
    monkeypatch.setattr(joining, "GROUPS_MAX", 100)
    monkeypatch.setattr(joining, "TOLD_MAX", 20)
    a = Joining("a", Talker(1).lobby._random)
    a.create("mine", "", 1.0, 0.0)
    for number in range(1_000):
        a.heard(666, Groups([GroupInfo(f"spam {number}", "", 1.0)]), 0.0)
    assert len(a.groups) == 21 and a.ignored == 980 and len(a.invitations) == 20
    a.heard(7, Groups([GroupInfo("real", "", 1.0)]), 0.0)
    assert "real" in a.groups
    for sender in range(1_000, 1_010):  # it comes back again and again, as another member
        a.heard(sender, Groups([GroupInfo(f"spam {sender} {number}", "", 1.0) for number in range(20)]), 0.0)
    assert len(a.groups) == 100
    for number in range(6):  # a fair part
        a.heard(8, Groups([GroupInfo(f"another real {number}", "", 1.0)]), 0.0)
    assert {"mine", "real", *(f"another real {number}" for number in range(6))} <= a.groups.keys()
    before = set(a.groups)
    a.heard(1_010, Groups([GroupInfo(f"spam 1010 {number}", "", 1.0) for number in range(20)]), 0.0)
    assert before - a.groups.keys() == {gid for gid in before - a.groups.keys() if gid.startswith("spam")}
    for number in range(99):
        a.create(f"more {number}", "", 1.0, 0.0)
    assert len(a.groups) == 100
    with pytest.raises(Overflow, match="leave some"):
        a.create("one too many", "", 1.0, 0.0)
    a.leave("mine", 0.0)
    a.create("one in its place", "", 1.0, 0.0)
    assert "mine" not in a.groups and len(a.groups) == 100
    a.tick(1e3)
    a.validate()


def test_invented_persons_keep_nobody_out():
    """A table is full of them: who is on the network takes a place all the same, and others can read the lists."""
    here: list[str] = []
    a, b = (
        Joining(name, Talker(me).lobby._random, piece_bytes=1 << 20, present=lambda: here)
        for me, name in enumerate("ab")
    )
    a.create("G", "", 1.0, 0.0)
    invented = [Row(f"{number:04x}", 1, True) for number in range(MEMBERS_MAX)]
    forged = Groups([GroupInfo("G", "", 1.0, invented, len(invented))])
    for one in (a, b):
        one.heard(666, forged, 0.0)
        assert len(one.groups["G"].rows) == MEMBERS_MAX
    assert "a" in a.groups["G"].rows and "a" not in b.groups["G"].rows
    b.join("G", 0.0)
    here += ["a", "b"]
    for seconds in range(3):
        for one, other in ((a, b), (b, a)):
            one.tick(100.0 * seconds)
            while one.out:
                other.heard(7, decode_lobby(encode(one.out.popleft())), 100.0 * seconds)
    for one in (a, b):
        assert {"a", "b"} <= set(one.groups["G"].info().members) and len(one.groups["G"].rows) == MEMBERS_MAX
        one.heard(666, Join("G", "nobody", 1), 0.0)
        assert "nobody" not in one.groups["G"].rows
        one.validate()


def test_who_is_in_a_conversation_leaves_it_and_does_not_refuse_it():
    a = Joining("a", Talker(1).lobby._random)
    a.create("G", "", 1.0, 0.0)
    with pytest.raises(BadInput, match="is in 'G': leave it"):
        a.refuse("G")
    assert a.groups["G"].standing == JOINED
    a.validate()


def test_who_left_and_advertises_itself_again_is_not_in_by_the_memory_of_an_earlier_life():
    hall = Hall()
    a, b = arrives(hall, Talker(1)), arrives(hall, Talker(2))
    b.lobby.create("G", "", 1.0, hall.now)
    b.lobby.leave("G", hall.now)
    b.lobby.join("G", hall.now)
    hall.run(1)
    b = hall.talkers[2] = Talker(2)  # it has forgotten all, and nobody hears it
    b.lobby.create("G", "", 1.0, hall.now)
    b.lobby.leave("G", hall.now)
    b.lobby.enter(hall.now)
    b.lobby.out.clear()
    b.lobby.heard(1, Groups([a.lobby.groups["G"].info()]), hall.now)
    hall.run(3)
    assert known(a) == known(b) == {"G": ("", [])}
    a.lobby.validate()


def test_a_forged_counter_silences_nobody():
    """Above the greatest counter no word could be read: who is said to have left with it still says that it is in."""
    hall = Hall()
    a, b = arrives(hall, Talker(1)), arrives(hall, Talker(2))
    a.lobby.create("G", "", 1.0, hall.now)
    hall.run(1)
    for talker in (a, b):
        talker.lobby.heard(666, Groups([GroupInfo("G", "", 1.0, [Row("p1", COUNTER_MAX, False)], 1)]), hall.now)
    while a.lobby.out:
        decode_lobby(encode(a.lobby.out.popleft()))
    hall.run(3)
    b.lobby.join("G", hall.now)
    hall.run(3)
    assert known(a) == known(b) == {"G": ("", ["p1", "p2"])}
    a.lobby.validate()


@pytest.mark.parametrize("since", [float("nan"), float("inf"), -1.0, 1e13])
def test_a_conversation_of_an_absurd_age_is_not_heard_of(since):
    """With an age that is no number, members would keep whichever description they heard first."""
    a = Joining("a", Talker(1).lobby._random)
    a.heard(666, Groups([GroupInfo("G", "forged", since)]), 0.0)
    assert a.groups == {} and a.ignored == 1 and a.invitations == []
    a.heard(7, Groups([GroupInfo("G", "true", 5.0)]), 0.0)
    a.heard(666, Groups([GroupInfo("G", "forged", since)]), 0.0)
    assert a.groups["G"].description == "true" and a.state == JoiningState.INITIAL


def test_what_is_not_known_cannot_be_joined():
    with pytest.raises(BadInput, match="no conversation 'x'"):
        Joining("a", Talker(1).lobby._random).join("x", 0.0)


class Lobby(RuleBasedStateMachine):
    """The oracle is the last wish of each person."""

    @initialize()
    def begin(self) -> None:
        self.hall = Hall(*(Talker(me) for me in (1, 2, 3)))
        self.wish: dict[tuple[str, int], bool] = {}
        self.left: set[tuple[str, int]] = set()
        """What each left in this life; of what an earlier one left it knows nothing."""
        for talker in self.hall.talkers.values():
            talker.lobby.enter(self.hall.now)

    @rule(me=st.sampled_from((1, 2, 3)), gid=st.sampled_from("GH"), what=st.sampled_from(("in", "out", "enter", "new")))
    def act(self, me: int, gid: str, what: str) -> None:
        lobby = self.hall.talkers[me].lobby
        if what == "in":
            lobby.create(gid, f"by {me}", float(me), self.hall.now)
            self.wish[(gid, me)] = True
            self.left.discard((gid, me))
        elif what == "out" and gid in lobby.groups and lobby.groups[gid].standing == JOINED:
            lobby.leave(gid, self.hall.now)
            self.wish[(gid, me)] = False
            self.left.add((gid, me))
        elif what == "enter":
            lobby.enter(self.hall.now)
        elif what == "new":  # it forgets all that it knew, but is in what it was in
            self.hall.talkers[me] = Talker(me)
            self.hall.talkers[me].lobby.enter(self.hall.now)
            self.left = {(name, one) for name, one in self.left if one != me}
            for (name, one), inside in self.wish.items():
                if one == me and inside:
                    self.hall.talkers[me].lobby.create(name, f"by {me}", float(me), self.hall.now)
        self.hall.flush()

    @precondition(lambda self: self.hall.waiting)
    @rule(place=st.integers(0, 1 << 16), how=st.sampled_from(("arrive", "arrive", "twice", "lose")))
    def network(self, place: int, how: str) -> None:
        at = place % len(self.hall.waiting)
        if how == "lose":
            self.hall.waiting.pop(at)
        else:
            self.hall.deliver(at, keep=how == "twice")

    @rule(seconds=st.floats(0.01, 2))
    def wait(self, seconds: float) -> None:
        self.hall.now += seconds
        self.hall.tick()

    @invariant()
    def valid(self) -> None:
        for talker in self.hall.talkers.values():
            talker.lobby.validate()

    def teardown(self) -> None:
        if hasattr(self, "hall"):
            for talker in self.hall.talkers.values():
                talker.lobby.enter(self.hall.now)
            self.hall.run(100, step=0.1)
            tables = [known(talker) for talker in self.hall.talkers.values()]
            assert tables[0] == tables[1] == tables[2]
            for (gid, me), inside in self.wish.items():
                if inside:
                    assert f"p{me}" in tables[0][gid][1]
                elif (gid, me) in self.left:
                    assert f"p{me}" not in tables[0][gid][1]


Lobby.TestCase.settings = settings(stateful_step_count=30, max_examples=40, deadline=None)
TestLobby = Lobby.TestCase
