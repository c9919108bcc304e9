"""Questions from outside: every member answers, nobody joins, and nobody can make a flood of it."""

from pluribus.core.frame import Frame
from pluribus.layers.inquiry import ANSWERS_PER_S_MAX, PARTS_MAX, Inquirer, Inquiry, Report
from pluribus.layers.presence import Presence
from pluribus.layers.transport import Transport
from pluribus.stack.events import Event, Inform, Inquired
from pluribus.stack.layer import Layer
from tests.harness import Medium, Member

STACK = "transport | inquiry | presence | window | groups"


class Answering(Member):
    """A member whose runtime answers with a text of its own."""

    def __init__(self, medium: Medium, name: str, text: bytes = b"", **engine: int) -> None:
        super().__init__(medium, name, STACK, **engine)
        dispatch = self.layers[-1]

        def event(event: Event) -> None:
            if isinstance(event, Inquired):
                dispatch.tell_down(Inform(event.member, event.question, text or name.encode()))

        dispatch.on_event = event


class Outside(Member):
    def __init__(self, medium: Medium) -> None:
        self.inquirer = Inquirer(Presence.headers)
        layers: list[Layer] = [Transport(), self.inquirer]
        super().__init__(medium, "outside", layers=layers)
        self.answers: dict[int, bytes] = {}
        self.inquirer.on_answer = self.answers.__setitem__

    def ask(self) -> dict[int, bytes]:
        self.answers.clear()
        self.stack.run(self.inquirer.ask)
        self.medium.deliver()
        return self.answers


def world(*members: Member) -> Medium:
    medium = members[0].medium
    for member in members:
        member.start()
    medium.run(1)
    return medium


def test_every_member_answers_and_knows_nobody_new():
    medium = Medium()
    ann, bob, outside = Answering(medium, "ann"), Answering(medium, "bob"), Outside(medium)
    world(ann, bob, outside)
    before = ann.stats("presence")
    assert outside.ask() == {ann.me: b"ann", bob.me: b"bob"}
    assert ann.stats("presence") == before and before["peers"] == 1
    assert ann.stats("inquiry") == {"answered": 1, "unanswered": 0}
    assert outside.stats("transport")["malformed"] == 0, "what members say to each other is understood"


def test_a_long_answer_comes_in_parts_that_fit_the_path():
    medium = Medium()
    text = bytes(range(256)) * 20
    ann, outside = Answering(medium, "ann", text, path_bytes=1_472), Outside(medium)
    world(ann, outside)
    assert outside.ask() == {ann.me: text}
    assert ann.stats("transport")["too_long"] == 0


def test_an_answer_that_is_too_long_is_not_given():
    medium = Medium()
    ann, outside = Answering(medium, "ann", b"x" * 1_000 * (PARTS_MAX + 1), path_bytes=1_472), Outside(medium)
    world(ann, outside)
    assert outside.ask() == {}
    assert ann.stats("inquiry") == {"answered": 0, "unanswered": 1}


def test_a_lost_part_costs_that_answer_and_the_next_is_whole():
    medium = Medium()
    text = b"x" * 3_000
    ann, outside = Answering(medium, "ann", text, path_bytes=1_472), Outside(medium)
    world(ann, outside)
    medium.lose = lambda data, source, target: target == ("outside", 0) and len(data) < 1_300
    assert outside.ask() == {}
    medium.lose = lambda data, source, target: False
    assert outside.ask() == {ann.me: text}


def test_a_flood_of_questions_is_not_answered():
    medium = Medium()
    ann, outside = Answering(medium, "ann"), Outside(medium)
    world(ann, outside)
    medium.clock.advance(1)
    given = sum(len(outside.ask()) for _ in range(ANSWERS_PER_S_MAX + 5))
    assert given == ANSWERS_PER_S_MAX
    assert ann.stats("inquiry")["unanswered"] == 5
    medium.clock.advance(1.1)
    assert outside.ask() == {ann.me: b"ann"}
    ann.stack.validate()


def test_answers_to_older_questions_and_nonsense_are_ignored():
    medium = Medium()
    outside = Outside(medium)
    world(outside)
    outside.ask()
    outside.ask()
    for header in (Report(1, 0, 1, b"old"), Report(2, 1, 1, b"beyond"), Report(2, 0, 0, b"none")):
        outside.stack.run(lambda header=header: outside.inquirer.up(Frame(sender=7, headers=[header])))
    assert outside.answers == {}
    outside.stack.run(lambda: outside.inquirer.up(Frame(sender=7, headers=[Report(2, 0, 1, b"new")])))
    assert outside.answers == {7: b"new"}


def test_a_members_own_stack_ignores_reports():
    medium = Medium()
    ann = Answering(medium, "ann")
    world(ann)
    inquiry = ann.layer(Inquiry)
    passed: list[Frame] = []
    inquiry.pass_up = passed.append
    inquiry.up(Frame(sender=7, headers=[Report(1, 0, 1, b"not asked for")]))
    inquiry.up(Frame(sender=7))
    assert [frame.headers for frame in passed] == [[]]
