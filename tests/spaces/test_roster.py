"""The roster: epochs are never used twice, whatever state it goes on with."""

from pluribus.spaces.roster import Enter, Epoch, Open, Roster, RosterEntry, Strike, encode


def roster(*commands, state=b""):
    made = Roster()
    made.restore(state)
    for command in commands:
        assert made.apply(0, encode(command)) == b""
    return made


def test_members_enter_and_are_struck_off_in_numbered_epochs():
    made = roster(Enter(1, 10, True), Enter(2, 20, False), Open(4), Strike([1]))
    assert made.epoch == Epoch(5, (RosterEntry(2, 20, False, 4),), "", 4, 10)
    assert roster(state=made.snapshot()).epoch == made.epoch
    assert roster(Strike([1]), Enter(2, 20, False), state=made.snapshot()).epoch == made.epoch


def test_one_that_begins_anew_uses_no_epoch_twice_and_what_was_before_is_out_of_date():
    assert roster(Enter(1, 10, True, seen=7)).epoch == Epoch(9, (RosterEntry(1, 10, True, 9),), "", 8, 10)


def test_one_that_goes_on_with_an_older_state_learns_of_later_epochs_from_who_saw_them():
    older = roster(Enter(1, 10, True), Enter(2, 20, True), Open(4)).snapshot()
    made = roster(Enter(2, 20, True, seen=9, opened=8), state=older)
    assert made.epoch == Epoch(11, (RosterEntry(1, 10, True, 2), RosterEntry(2, 20, True, 11)), "", 8, 10)
    again = roster(Enter(2, 20, True, seen=9, opened=8), state=made.snapshot())
    assert again.epoch == made.epoch


def test_one_that_began_anew_does_not_learn_from_who_comes_from_the_one_before():
    anew = roster(Enter(1, 10, True), Open(2)).snapshot()
    made = roster(Enter(2, 20, True, seen=9, opened=8, born=99), state=anew)
    assert made.epoch == Epoch(11, (RosterEntry(1, 10, True, 2), RosterEntry(2, 20, True, 11)), "", 2, 10)
    before = Epoch(9, (), "", 8, 99)
    assert not made.epoch.follows(before) and made.epoch.follows(None) and made.epoch.follows(Epoch(0, ()))
