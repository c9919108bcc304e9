"""What others say wrongly, by a mistake or on purpose, makes no view that cannot be."""

import pytest

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL
from pluribus.layers.membership import Membership
from pluribus.layers.membership.attempt import Attempt
from pluribus.layers.membership.words import Enter, Invite, Joined, Past, Proposal, Propose, Roster, Wish
from pluribus.stack.events import Reached
from tests.layers.alone import GROUP, Alone

ME, LEADER, THIRD = 1, 2, 3
BALLOT = (7, LEADER)


def joined(member: int, wishes: list[Wish]) -> Joined:
    return Joined(BALLOT, (1, member), (1, member), [member], [], [], (0, 0), wishes, Past(None))


def test_who_wishes_for_a_group_twice_is_in_it_once():
    attempt = Attempt(BALLOT, [LEADER, ME], {}, 0.0)
    wish = Wish(GROUP, "group", "fifo")
    attempt.answers = {LEADER: joined(LEADER, [wish]), ME: joined(ME, [wish, wish])}
    proposal = attempt.propose([LEADER], 0.0)
    assert proposal.rosters == [Roster(GROUP, "group", "fifo", [LEADER, ME])]


IMPOSSIBLE = {
    "a name too few": Proposal(BALLOT, [LEADER, ME], ["leader"], None, [], []),
    "a member twice": Proposal(BALLOT, [LEADER, ME, ME], ["leader", "me", "me"], None, [], []),
    "nobody": Proposal(BALLOT, [LEADER, ME, ALL], ["leader", "me", ""], None, [], []),
    "a group of strangers": Proposal(
        BALLOT, [LEADER, ME], ["leader", "me"], None, [Roster(GROUP, "", "", [ME, THIRD])], []
    ),
    "twice in a group": Proposal(BALLOT, [LEADER, ME], ["leader", "me"], None, [Roster(GROUP, "", "", [ME, ME])], []),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_a_view_that_cannot_be_is_not_agreed_to(what: str):
    alone = Alone(Membership(), ME)
    alone.layer.start()

    def hears(header: Invite | Propose | Enter) -> None:
        alone.layer.up(Frame(sender=LEADER, to=ME, headers=[header]))

    hears(Invite(BALLOT))
    hears(Propose(IMPOSSIBLE[what], [], (0, 0)))
    alone.layer.event_up(Reached())
    hears(Enter(BALLOT))
    assert alone.layer._members == [ME]
    assert alone.layer.refused == 1
    alone.layer.validate()


def test_a_view_that_can_be_is_entered():
    alone = Alone(Membership(), ME)
    alone.layer.start()
    rosters = [Roster(GROUP, "group", "fifo", [ME])]
    proposal = Proposal(BALLOT, [LEADER, ME], ["leader", "me"], None, rosters, [])
    alone.layer.up(Frame(sender=LEADER, to=ME, headers=[Invite(BALLOT)]))
    alone.layer.up(Frame(sender=LEADER, to=ME, headers=[Propose(proposal, [], (0, 0))]))
    alone.layer.event_up(Reached())
    alone.layer.up(Frame(sender=LEADER, to=ME, headers=[Enter(BALLOT)]))
    assert alone.layer._members == [LEADER, ME] and alone.layer.refused == 0
