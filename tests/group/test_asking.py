"""Who is asked, whose answer counts, when a question is over: beside an oracle that reads the whole story again."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pluribus.core.errors import BadInput, NoMembers, Overflow, PluribusError, Unanswered, Uncertain
from pluribus.core.frame import Frame, Message
from pluribus.core.limits import QUESTIONS_MAX
from pluribus.group.asking import Answers, Asking, Question, checked_replies
from pluribus.wire.bodies import encode_body, join_bodies
from pluribus.wire.questions import ABSENT, ANSWER, FAILED, GOOD, QUESTION, Answered, Asked, wrapped

ME = 1
EVERYBODY = (1, 2, 3, 4, 5)


def began(replies: str | int = "all", members: Sequence[int] = EVERYBODY, **options: bool) -> tuple[Asking, list]:
    over: list[Answers | PluribusError] = []
    asking = Asking("x", ME, own=options.get("own", True), echoes=options.get("echoes", True))
    asking.begin(7, members, checked_replies(replies), (), over.append)
    return asking, over


def frame_of(word: Asked | Answered, sender: int, first: int = 0) -> Frame:
    kind, encoded = encode_body(word)
    return Frame(sender=sender, group=9, first=first, count=1, kind=kind, bodies=join_bodies(kind, [encoded]))


def answer(outcome: int = GOOD, body: object = "yes") -> Answered:
    return Answered(7, outcome, wrapped(body if outcome == GOOD else ["ValueError", "no"]))


def place(asking: Asking, members: Sequence[int] = EVERYBODY) -> None:
    asking.heard(frame_of(Asked(7, wrapped("?")), ME), members)


def test_all_is_over_when_every_member_has_answered():
    asking, over = began()
    place(asking)
    for member in EVERYBODY:
        assert not over
        asking.answers(frame_of(answer(body=f"of {member}"), member))
        asking.validate()
    (answers,) = over
    assert [(a.sender, a.body) for a in answers] == [(member, f"of {member}") for member in EVERYBODY]
    assert answers.left == () and not asking.pending


def test_all_means_all_who_are_still_there():
    asking, over = began()
    place(asking)
    asking.answered(1, answer())
    asking.answered(2, answer())
    asking.members_changed((1, 3, 4), unsent=9)
    asking.answered(3, answer(FAILED))
    asking.answered(4, answer())
    (answers,) = over
    assert [a.sender for a in answers] == [1, 2, 3, 4], "2 had answered before it left"
    assert answers.left == (5,)
    assert answers[2].error.kind == "ValueError"
    with pytest.raises(PluribusError, match="ValueError: no"):
        _ = answers[2].body


def test_a_question_that_was_not_delivered_yet_follows_the_view():
    asking, over = began("majority", members=(1, 2))
    asking.answered(2, answer())  # it delivered the question before we did
    asking.members_changed((1, 2, 3, 4), unsent=9)
    place(asking, (1, 2, 3, 4))
    asking.answered(1, answer())
    assert not over, "two of four are no majority"
    asking.answered(4, answer())
    assert [a.sender for a in over[0]] == [2, 1, 4]


def test_a_member_that_joins_after_the_delivery_is_not_waited_for():
    asking, over = began(members=(1, 2))
    place(asking, (1, 2))
    asking.members_changed((1, 2, 3), unsent=9)
    asking.answered(1, answer())
    asking.answered(2, answer())
    assert len(over[0]) == 2


def test_where_nothing_comes_back_the_view_in_which_it_left_counts():
    asking, over = began(members=(1, 2, 3), own=False, echoes=False)
    asking.members_changed((1, 2, 3, 4), unsent=0)
    asking.sent(7, 5, (1, 2, 3, 4))
    asking.members_changed((1, 2, 4), unsent=5)  # not on its way yet: message 5 is still to leave
    asking.members_changed((1, 2, 4, 5), unsent=6)
    asking.answered(2, answer())
    assert not over
    asking.answered(4, answer())
    assert [a.sender for a in over[0]] == [2, 4] and over[0].left == ()


def test_where_own_messages_are_dropped_their_numbers_give_the_place():
    asking, over = began(members=(1, 2), own=False)
    asking.heard_upto(5, (1, 2))
    asking.sent(7, 5, (1, 2))
    asking.members_changed((1, 2, 3), unsent=6)
    asking.heard_upto(6, (1, 2, 3))
    asking.answered(2, answer())
    assert not over
    asking.answered(3, answer())
    assert len(over[0]) == 2


def test_who_serves_nothing_is_not_counted():
    asking, over = began("majority")
    place(asking)
    for member in (1, 2, 3):
        asking.answered(member, Answered(7, ABSENT))
    asking.answered(4, answer())
    assert not over, "one of two is no majority"
    asking.answered(5, answer())
    assert len(over[0]) == 2


def test_nobody_serves():
    asking, over = began()
    place(asking)
    for member in EVERYBODY:
        asking.answered(member, Answered(7, ABSENT))
    assert isinstance(over[0], NoMembers)


def test_errors_are_answers_for_all_and_for_nothing_else():
    asking, over = began("one", members=(1, 2))
    place(asking, (1, 2))
    asking.answered(1, answer(FAILED))
    assert not over
    asking.answered(2, answer(FAILED))
    assert type(over[0]) is Unanswered and len(over[0].answers) == 2


def test_too_few_members_are_an_error_at_once():
    with pytest.raises(NoMembers, match=r"6 answers.*5 members"):
        began(6)
    with pytest.raises(NoMembers):
        began("all", members=(ME,), own=False)
    asking, over = began("majority")
    place(asking)
    asking.answered(2, answer())
    asking.members_changed((1, 2), unsent=9)
    assert isinstance(over[0], NoMembers) and [a.sender for a in over[0].answers] == [2]


def test_late_and_repeated_answers_are_dropped_and_counted():
    asking, over = began(2)
    place(asking)
    asking.answered(1, answer())
    asking.answered(1, answer())
    asking.answered(2, answer())
    asking.answered(3, answer())
    assert [a.sender for a in over[0]] == [1, 2]
    assert (asking.duplicates, asking.late) == (1, 1)


def test_answers_that_do_not_decode_are_counted():
    asking, over = began(members=(1,))
    place(asking, (1,))
    asking.answers(Frame(sender=1, kind=ANSWER, count=1, bodies=[b"?"]))
    asking.answered(1, Answered(7, GOOD, (99, b"")))
    asking.answered(1, Answered(7, GOOD, ("unheard of", b"\x01")))
    assert asking.malformed == 2 and [a.body.kind for a in over[0]] == ["unheard of"]


def test_a_question_that_was_cut_off_is_uncertain():
    asking, over = began()
    asking.sent(7, 5, EVERYBODY)
    asking.dropped([(2, 5), (ME, 4)])
    assert not over
    asking.dropped([(ME, 5)])
    assert isinstance(over[0], Uncertain) and over[0].id == (ME, 5) and not asking.pending


def test_only_those_named_are_expected():
    over: list = []
    asking = Asking("x", ME, own=True, echoes=True)
    asking.begin(7, EVERYBODY, "all", (2, 3), over.append)
    place(asking)
    asking.answered(2, answer())
    asking.answered(3, answer())
    assert len(over[0]) == 2


def test_questions_are_bounded_and_end_with_the_group():
    asking = Asking("x", ME, own=True, echoes=True)
    over: list = []
    for number in range(QUESTIONS_MAX):
        asking.begin(number, (1,), 1, (), over.append)
    with pytest.raises(Overflow):
        asking.begin(QUESTIONS_MAX, (1,), 1, (), over.append)
    asking.close(PluribusError("closed"))
    assert len(over) == QUESTIONS_MAX and not asking.pending


@pytest.mark.parametrize("wrong", ["two", 0, -1, 1.5, True, None])
def test_a_number_of_answers_that_is_none(wrong):
    with pytest.raises(BadInput, match="replies="):
        checked_replies(wrong)


def test_a_message_that_asks_nothing_has_no_reply():
    with pytest.raises(BadInput, match="asks nothing"):
        Message(b"", ME, (ME, 0)).reply(b"")
    assert Question(b"", ME, (ME, 0)).asks and not Message(b"", ME, (ME, 0)).asks


steps = st.one_of(
    st.tuples(st.sampled_from(["good", "bad", "absent"]), st.sampled_from(EVERYBODY)),
    st.tuples(st.just("leave"), st.sampled_from(EVERYBODY[1:])),
    st.tuples(st.just("join"), st.sampled_from(EVERYBODY[1:])),
    st.tuples(st.just("place"), st.just(ME)),
)


def oracle(replies: str | int, story: Sequence[tuple[str, int]]) -> tuple[str, list[int]] | None:
    """How it is over after these steps, found from the story alone: the outcome and who answered."""
    view, asked, gone = [1, 2, 3], [1, 2, 3], set()
    said: dict[int, str] = {}
    placed = False
    for what, who in story:
        if what == "place":
            asked = asked if placed else list(view)
            placed = True
        elif what == "leave":
            view = [member for member in view if member != who]
        elif what == "join":
            view = [*view, who] if who not in view else view
        else:
            said.setdefault(who, what)
        if placed:
            gone |= {member for member in asked if member not in view}
        else:
            asked = list(view)
        good = [member for member, word in said.items() if word == "good"]
        heard = [member for member, word in said.items() if word != "absent"]
        counted = [member for member in asked if said.get(member) != "absent"]
        open_ = [member for member in counted if member not in said and member not in gone]
        need = len(counted) // 2 + 1 if replies == "majority" else replies
        if replies == "all":
            if placed and not open_:
                return ("answers", heard) if heard else ("too few", heard)
        elif len(good) >= need and (placed or replies != "majority"):
            return "answers", good
        elif placed and len(good) + len(open_) < need:
            return "too few", heard
    return None


@given(st.sampled_from(["majority", "all", 1, 2, 3]), st.lists(steps, max_size=15))
def test_every_story_ends_as_the_oracle_says(replies, story):
    asking, over = began(replies, members=(1, 2, 3))
    view = [1, 2, 3]
    words = {"good": answer(), "bad": answer(FAILED), "absent": Answered(7, ABSENT)}
    for at, (what, who) in enumerate(story):
        if what == "place":
            place(asking, view)
        elif what in words:
            asking.answered(who, words[what])
        else:
            view = [member for member in view if member != who] + [who] * (what == "join")
            asking.members_changed(view, unsent=99)
        asking.validate()
        expected = oracle(replies, story[: at + 1])
        if expected is None:
            assert not over
            continue
        (found,) = over
        if expected[0] == "answers":
            assert [a.sender for a in found] == expected[1]
        else:
            assert [a.sender for a in found.answers] == expected[1]
        break


def test_a_question_is_a_kind_of_its_own():
    assert encode_body(Asked(1, wrapped("?")))[0] == QUESTION
