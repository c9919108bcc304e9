"""Who is writing: few words, and nobody writes for ever."""

from random import Random

from pluribus.conversations.history import History
from pluribus.conversations.synchronising import Synchronising
from pluribus.conversations.typing import SAY_S, SHOWN_S, WRITING_MAX, Typing
from pluribus.conversations.words import Entry, Said, Writing, decode_room, encode


def test_every_key_is_told_and_few_words_are_said():
    typing = Typing()
    words = [typing.write(True, key / 10) for key in range(100)]
    assert [at / 10 for at, word in enumerate(words) if word is not None] == [0.0, SAY_S, 2 * SAY_S, 3 * SAY_S]
    assert typing.write(False, 10.0) == Writing(False) and typing.write(False, 10.1) is None


def test_who_falls_silent_is_not_shown_for_ever():
    typing = Typing()
    assert typing.due_at is None
    typing.heard(5, True, 1.0)
    typing.heard(6, True, 2.0)
    typing.heard(5, True, 3.0)
    assert typing.changed and typing.members == [5, 6] and typing.due_at == 2.0 + SHOWN_S
    typing.changed = False
    typing.tick(2.0 + SHOWN_S)
    assert typing.changed and typing.members == [5]
    typing.heard(5, False, 9.5)
    assert typing.members == [] and typing.due_at is None


def test_a_crowd_that_writes_is_bounded():
    typing = Typing()
    for sender in range(10 * WRITING_MAX):
        typing.heard(sender, True, 0.0)
        typing.validate()
    assert len(typing.members) == WRITING_MAX
    typing.tick(SHOWN_S)
    assert typing.members == []


def test_a_message_ends_it_at_both_ends():
    here, there = (Synchronising(me, History(), Random(me)) for me in (1, 2))
    here.write(True, 0.0)
    there.heard(1, decode_room(encode(here.out.popleft())), 0.0)
    assert there.typing.members == [1]
    here.say(Entry((1, 0), None, "ann", 0.0, "said"), 0.5)
    (said,) = here.out
    assert isinstance(said, Said)
    there.heard(1, said, 0.5)
    assert there.typing.members == []
    here.write(True, 0.6)
    assert here.out[-1] == Writing(True), "what is written next is told at once"
