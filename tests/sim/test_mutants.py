"""Campaigns find bugs: a window with one line wrong is caught by a short flood, and its seed shows it again.

Each mutant is the shipped layer with one mistake that a programmer could make.
"""

import pytest

from pluribus.layers import CATALOGUE
from pluribus.layers.window import Window
from pluribus.sim.machinery.campaign import campaign, play_seed


class Forgetful(Window):
    """Does not notice that a frame is late: duplicates and overtaken frames are delivered."""

    def _receive(self, frame, sent):
        late, again = self.late, frame.copy()
        super()._receive(frame, sent)
        if self.late > late:
            self.pass_up(again)


class Leaky(Window):
    """Takes one frame of fifty for late."""

    count = 0

    def _receive(self, frame, sent):
        self.count += 1
        if self.count % 50:
            super()._receive(frame, sent)


class Impatient(Window):
    """Holds a frame back now and then, and passes it up behind the next."""

    held = None
    count = 0

    def _receive(self, frame, sent):
        self.count += 1
        if self.held is None and self.count % 50 == 0:
            self.held = (frame, sent)
            return
        super()._receive(frame, sent)
        if self.held is not None:
            held, self.held = self.held, None
            self.pass_up(held[0])


class Confused(Window):
    """Takes one stream's place for another's: messages come with the next number."""

    count = 0

    def _receive(self, frame, sent):
        self.count += 1
        if self.count % 50 == 0:
            frame.first += 1
        super()._receive(frame, sent)


class Fragile(Window):
    """Fails on a frame now and then; the node survives it, and nothing but the message is gone."""

    count = 0

    def _receive(self, frame, sent):
        self.count += 1
        if self.count % 50 == 0 and frame.sender != self.node.me:
            raise KeyError(frame.group)
        super()._receive(frame, sent)


class Broken(Window):
    """Fails where no frame is to blame."""

    def _acknowledge(self):
        raise KeyError("acknowledge")


class Stuck(Window):
    """Never opens a stream again after a member of it was lost sight of."""

    def _admit(self, key, first, sent):
        return None if key in self._departed else super()._admit(key, first, sent)


FOUND = {
    # How many seeds are enough to find the mutant, and what they find.
    Forgetful: (2, "a second time"),
    Leaky: (2, "never delivered"),
    Impatient: (7, "of the same sender"),
    Confused: (2, "with another body"),
    Fragile: (2, "frames that a layer could not handle"),
    Broken: (2, "KeyError: 'acknowledge'"),
    Stuck: (5, "never delivered"),
}


@pytest.mark.parametrize("mutant", FOUND, ids=lambda mutant: mutant.__name__)
def test_a_short_campaign_finds_the_mutant_and_its_seed_shows_it_again(monkeypatch, mutant):
    monkeypatch.setitem(CATALOGUE, "window", mutant)
    seeds, sentence = FOUND[mutant]
    found = campaign("flood", range(seeds))
    assert found["violations"] == len(found["failures"]) == len(found["reasons"]) > 0
    seed = next(int(seed) for seed, reason in found["reasons"].items() if sentence in reason)
    assert play_seed("flood", seed).failure == found["reasons"][str(seed)]


def test_the_shipped_window_passes_where_mutants_fail():
    found = campaign("flood", range(5))
    assert (found["violations"], found["failures"], found["reasons"]) == (0, [], {})
