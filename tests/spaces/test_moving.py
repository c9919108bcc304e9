"""Ranges move in pieces: each is short, together they are the range, and nothing travels that is there already."""

from random import Random

import pytest

from pluribus.spaces.partitioned import pieces as pieces_of
from pluribus.spaces.partitioned import words
from pluribus.spaces.partitioned.pieces import RangePieces
from pluribus.spaces.partitioned.ranges import RangeState, range_of
from pluribus.spaces.partitioned.words import Carried, Change, Interest, Owed, Watching
from pluribus.spaces.templates import template_of
from pluribus.spaces.values import item_of
from tests.spaces import test_partitioned, test_watching
from tests.spaces.test_partitioned import Story


def a_range(random):
    """One with something of everything."""
    state = RangeState(3, 2)
    item = item_of(("a", 7))
    listening = Watching(template_of(("a", int)), 0, b"back", False)
    for number in range(1, 9):
        state.step([Change(watch=((9, number), listening))], 1.0)
    for number in range(1, 40):
        state.step([Change(add=((5, number), item_of(("a", number, "x" * random.randrange(40))), 0))], 1.0)
        state.step([Change(add=((6, number), item_of(("a", number)), 3_000_000), floor=(6, number // 2))], 1.0)
        state.step([Change(wait=Interest(7, number, template_of((str, int, int)), True))], 1.0)
        state.step([Change(done=(8, number, (5, number), item if number % 2 else None))], 1.0)
        state.step([Change(owe=Owed(8, number, Carried(item, 0, 1, 1)))], 1.0)
        if number % 5 == 0:
            state.step([Change(set_aside=((6, number), 7, number))], 1.0)
    return state


def carried(state):
    """The same range, after it has travelled; and the lengths of its pieces."""
    pieces, at, made, lengths = RangePieces(state), 0, None, []
    while True:
        piece = words.decode(words.encode(pieces.piece(3, 11, at, 1.0)))
        assert pieces.piece(3, 11, at, 1.0) is not None, "it can be asked for again"
        lengths.append(len(words.encode(piece)))
        made = made or RangeState.arriving(piece)
        made.arrived(piece, 1.0)
        at += 1
        if piece.last:
            return made, lengths
        assert pieces.piece(3, 11, at + 1, 1.0) is None, "where it begins is not known yet"


@pytest.mark.parametrize("piece_bytes", [1, 100, 1_000, 5_000, 1 << 20])
def test_the_pieces_together_are_the_range(monkeypatch, piece_bytes):
    state = a_range(Random(piece_bytes))
    monkeypatch.setattr(pieces_of, "PIECE_BYTES_MAX", piece_bytes)
    made, lengths = carried(state)
    assert (len(lengths) == 1) == (piece_bytes == 1 << 20)
    assert max(lengths) < piece_bytes + 800
    made.validate()
    monkeypatch.undo()
    whole = [words.encode(RangePieces(one).piece(3, 11, 0, 1.0)) for one in (state, made)]
    assert whole[0] == whole[1] and made.epoch == state.epoch


def test_a_range_that_is_empty_is_one_piece():
    made, lengths = carried(RangeState(3, 3))
    assert len(lengths) == 1 and not made.tuples and (made.epoch, made.born) == (0, 3)


def in_pieces(seeds):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pieces_of, "PIECE_BYTES_MAX", 150)
        for seed in seeds:
            test_partitioned.test_faults(seed)
            if seed % 4 == 0:
                test_watching.faults("partitioned", seed)


@pytest.mark.parametrize("seed", range(12))
def test_moving_in_many_pieces_under_faults(seed):
    in_pieces([seed])


class Counting(Story):
    """Counts the words about ranges that travel, and the bytes of the longest word."""

    def __init__(self, *options, **more):
        super().__init__(*options, **more)
        self.states = self.longest = 0
        deliver = self.net.deliver

        def counted(sender, to, data):
            if sender != to:
                self.states += isinstance(words.decode(data), words.State)
                self.longest = max(self.longest, len(data))
            deliver(sender, to, data)

        self.net.deliver = counted


def test_a_long_range_is_no_long_word():
    story = Counting(1, 0, copies=2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    for number in range(30):
        story.write(1, ("a", number, "x" * 200_000))
    story.net.run(3)
    assert len(story.kept) == 30
    for me in (3, 4, 5):
        story.net.enter(me)
        story.net.run(5)
    for me in (1, 2):
        story.crash(me)
        story.net.run(5)
    assert len(story.left()) == 30 and not story.lost
    assert story.states > 12 and story.longest < pieces_of.PIECE_BYTES_MAX + 201_000


def test_a_copy_that_is_there_does_not_travel_again_and_is_the_range_when_its_owner_dies():
    story = Counting(2, 0, copies=2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    for number in range(20):
        story.write(1, (f"name {number}", number))
    story.net.run(2)
    before = story.states
    story.net.enter(3, holds=False)
    story.net.run(2)
    assert story.states == before, "every member has what it is to have"
    for number in range(20, 30):
        story.write(3, (f"name {number}", number))
    story.net.run(2)
    story.crash(1)
    story.net.run(5)
    assert len(story.left()) == 30 and not story.lost


def test_a_member_that_never_saw_an_epoch_open_has_its_copies_of_it():
    """It learns of the next epoch first, in which it is the only one that has the range."""
    story = Story(3, 0, copies=2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    for number in range(10):
        story.write(1, (f"name {number}", number))
    story.net.run(2)
    tell = story.net.tell
    story.net.tell = lambda me, member, epoch: (
        None if me == 2 and epoch.opened == epoch.number else tell(me, member, epoch)
    )
    story.net.enter(3, holds=False)
    story.net.run(2)
    owned = story.net.members[1].server.owned()
    name = next(name for name in map(str, range(99)) if range_of(item_of((name, 1)), 0) in owned)
    story.write(1, (name, 1))
    story.net.run(1)
    assert len(story.kept) == 11
    story.net.tell = tell
    story.crash(1)
    story.net.run(5)
    assert len(story.left()) == 11 and not story.lost


def test_what_a_range_got_in_its_first_epoch_is_in_the_copy_of_who_never_saw_it_open():
    story = Story(3, 0, copies=2)
    tell = story.net.tell
    story.net.tell = lambda me, member, epoch: (
        None if me == 2 and epoch.opened == epoch.number else tell(me, member, epoch)
    )
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    first, second = story.net.members[1], story.net.members[2]
    assert first.opened and not second.opened and first.server.states[0].born == first.epoch.number
    owned = first.server.owned()
    name = next(name for name in map(str, range(99)) if range_of(item_of((name, 1)), 0) in owned)
    story.write(1, (name, 1))
    story.net.run(1)
    assert len(story.kept) == 1
    story.net.tell = tell
    story.crash(1)
    story.net.run(5)
    assert len(story.left()) == 1 and not story.lost


def test_of_many_steps_under_way_a_part_is_repeated(monkeypatch):
    story = Counting(4, 0, copies=2)
    for me in (1, 2):
        story.net.enter(me)
    story.net.run(3)
    owner = next(me for me in (1, 2) if range_of(item_of(("a", 1)), 0) in story.net.members[me].server.owned())
    story.net.cut.add(3 - owner)
    for number in range(40):
        story.write(owner, ("a", number, "x" * 100_000))
        story.net.run(0.01)
    story.net.run(2)
    story.net.cut.clear()
    story.net.run(10)
    assert len(story.kept) == 40 and story.longest < pieces_of.PIECE_BYTES_MAX + 101_000


def test_a_piece_is_asked_for_more_rarely_while_it_does_not_come():
    story = Counting(5, 0)
    story.net.enter(1)
    story.net.run(1)
    story.write(1, ("a", 1))
    story.net.run(1)
    asked = []
    deliver = story.net.deliver

    def mute(sender, to, data):
        word = words.decode(data)
        if isinstance(word, words.Pull):
            asked.append(word.range)
        elif not isinstance(word, words.State):
            deliver(sender, to, data)

    story.net.deliver = mute
    story.net.enter(2)
    story.net.run(30)
    assert len(set(asked)) == 16, "of so many ranges at a time"
    assert 6 <= len(asked) / 16 <= 11, "not every 0.3 seconds"
    story.net.deliver = deliver
    story.net.run(10)
    assert len(story.left()) == 1 and not story.lost
