"""Answers: what a handler's result says to who asked, and who gets it."""

import pytest

from pluribus.core.errors import BadInput, NoMembers, Overflow, RemoteError, Sorry
from pluribus.objects import replies as replies_of
from pluribus.objects.interfaces import checked_arguments, export, exported
from pluribus.objects.messages import LATER, ObjectMessage, addressed, answer_of, error_of, failure_of
from pluribus.objects.replies import Replies
from pluribus.wire.kqml import Word, kqml, parse

ASKED = addressed(kqml("ask-one", content="price"), "id:asker", "shop", "q7")


def test_results_become_answers():
    assert str(answer_of(ASKED, 12.5, "id:me")) == (
        "(tell :content 12.5 :in-reply-to q7 :sender id:me :receiver id:asker)"
    )
    assert answer_of(ASKED, None, "id:me").performative == "sorry"
    assert answer_of(ASKED, LATER, "id:me") is None
    assert answer_of(kqml("tell", content=1), 5, "id:me") is None, "nobody asked"
    assert answer_of(ASKED.changed("achieve"), None, "id:me").performative == "tell"
    assert answer_of(ASKED.changed("ask-all"), (n for n in (1, 2)), "id:me").content == ["1", "2"]
    assert answer_of(ASKED, {"a": 1}, "id:me") == ObjectMessage({"a": 1}, "id:me", "id:asker", "", "q7")
    own = answer_of(ASKED, kqml("deny", content="x"), "id:me")
    assert own.performative == "deny" and own["in-reply-to"] == "q7" and own["receiver"] == "id:asker"
    assert answer_of(ObjectMessage(1, "id:asker", "shop", "q8"), 2, "id:me")["in-reply-to"] == "q8"


def test_exceptions_become_errors_and_come_back():
    failed = failure_of(ASKED, ValueError("no such thing"), "id:me")
    assert failed.performative == "error" and failed["in-reply-to"] == "q7"
    error = error_of(failed)
    assert isinstance(error, RemoteError) and error.kind == "ValueError" and "no such thing" in str(error)
    assert isinstance(error_of(failure_of(ASKED, Sorry("closed today"), "id:me")), Sorry)
    assert failure_of(failed, ValueError(), "id:me") is None, "an error is not answered with an error"
    assert failure_of(kqml("tell"), ValueError(), "id:me") is None
    assert error_of(kqml("tell")) is None and error_of(ObjectMessage(1)) is None


def test_an_answer_reaches_the_asker_that_gave_the_token_and_nobody_else():
    replies, told = Replies(), []
    for asker in ("id:a", "id:b"):
        replies.begin(asker, "q1", 5, lambda answer, asker=asker: told.append((asker, answer)))
    answer = parse("(tell :in-reply-to q1 :receiver id:b)")
    assert not replies.answered("id:c", answer) and not replies.answered("id:b", parse("(tell :in-reply-to q2)"))
    assert replies.answered("id:b", answer) and told == [("id:b", answer)]
    assert not replies.answered("id:b", answer), "a question is answered once"
    replies.members({5, 6})
    assert len(told) == 1
    replies.members({6})
    assert told[1][0] == "id:a" and isinstance(told[1][1], NoMembers) and len(replies) == 0


def test_standing_questions_late_answers_and_limits(monkeypatch):
    replies, told = Replies(), []
    token = replies.new_token()
    replies.begin("id:a", token, 0, told.append, standing=True)
    with pytest.raises(BadInput, match="of its own"):
        replies.begin("id:a", token, 0, told.append)
    for _ in range(3):
        assert replies.answered("id:a", parse(f"(tell :in-reply-to {token})"))
    replies.forget("id:a", token)
    assert len(told) == 3 and replies.is_late(parse(f"(tell :in-reply-to {token})")) and replies.late == 1
    assert not replies.is_late(parse("(tell :in-reply-to mine)"))
    monkeypatch.setattr(replies_of, "REPLIES_MAX", 0)
    with pytest.raises(Overflow):
        replies.begin("id:a", "x", 0, told.append)


class Lamp:
    def shine(self, brightness: float, colors: tuple[str, ...] = ()) -> None: ...


def test_exports_say_who_may_call_through_which_handle():
    open_to_all = export(Lamp)
    assert all(open_to_all.allows(how, "x", "anybody") for how in ("omni", "group", "uni"))
    closed = export(Lamp, omni=False, groups=["floor-3"], uni=False, callers=["desk"])
    assert closed.allows("group", "floor-3", "desk") and not closed.allows("group", "floor-3", "cellar")
    assert not any(closed.allows(how, "floor-4", "desk") for how in ("omni", "group", "uni"))
    with pytest.raises(BadInput, match="has no method 'shine' of Lamp"):
        exported(Lamp, object())


def test_arguments_from_outside_are_checked():
    method = export(Lamp).methods["shine"]
    assert checked_arguments(method, [1, ["red"]], {}) == ([1, ("red",)], {})
    for args, named in ((["bright"], {}), ([], {}), ([1, [2]], {}), ([1], {"size": 2})):
        with pytest.raises(BadInput, match="shine"):
            checked_arguments(method, args, named)
    assert checked_arguments(method, [], {"brightness": 0.5}) == ([0.5], {})
    assert Word("x") == "x"
