"""From what layers tell to what an application is told: the order, the names, nothing twice."""

from pluribus.core.events import (
    BecamePrimary,
    Event,
    Excluded,
    Gone,
    LostPrimary,
    Merged,
    Suspected,
    ViewInstalled,
)
from pluribus.core.ids import MemberId
from pluribus.core.view import View
from pluribus.group.notices import Notices
from pluribus.stack.events import Blocked, Found, Members, Tell, ViewChanged

A, B, C = MemberId(1), MemberId(2), MemberId(3)
NAMES = {A: "ann", B: "bob", C: "cid"}


def told_of(*events: Event) -> list[Event]:
    told: list[Event] = []
    notices = Notices(told.append)
    for event in events:
        notices.take(event)
    return told


def shown(*people: MemberId) -> Members:
    return Members(0, people, {member: NAMES[member] for member in people}, agreed=True)


def view(number: int, *people: MemberId) -> View:
    return View(number, people, {member: NAMES[member] for member in people}, agreed=True)


def test_a_view_is_told_when_its_names_are_known_and_the_primary_only_when_it_changes():
    first, second = ViewChanged(4, 1, (A, B), primary=True), ViewChanged(5, 1, (A,), primary=True)
    told = told_of(first, shown(A, B), shown(A, B), second, shown(A), ViewChanged(6, 1, (A,), primary=False), shown(A))
    assert told == [
        ViewInstalled(view(4, A, B), primary=True),
        BecamePrimary(view(4, A, B)),
        ViewInstalled(view(5, A), primary=True),
        ViewInstalled(view(6, A), primary=False),
        LostPrimary(view(6, A)),
    ]


def test_a_merge_names_its_sides_and_what_it_meant_comes_behind_it():
    merged = ViewChanged(9, 1, (A, B, C), primary=True, sides=((A, B), (C,)), excluded=True)
    told = told_of(merged, Excluded(("votes",)), Suspected(B, "bob"), shown(A, B, C))
    assert told == [
        ViewInstalled(view(9, A, B, C), primary=True),
        Merged(((A, B), (C,))),
        BecamePrimary(view(9, A, B, C)),
        Excluded(("votes",)),
        Suspected(B, "bob"),
    ]


def test_what_is_between_layers_alone_is_not_told():
    plain = Gone(B, "it left", "bob")
    assert told_of(Blocked(True), Found(B, "bob"), Tell(b"x"), Members(7, (A,), {A: "ann"}), shown(A), plain) == [plain]
