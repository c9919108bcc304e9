"""Members that stood still, with one mistake each. Campaigns of the scenario ``waking`` must find them."""

from pluribus.layers.total import Total
from pluribus.layers.total.doubt import Doubt

enough = Doubt._enough


class Sleepy:
    """Never asks itself whether it was held up."""

    of = Doubt

    def look(self):
        """It is always awake."""


class Trusting(Total):
    """Takes whatever it reads after waking for a sign that all is as it was."""

    def up(self, frame):
        doubt = self._doubt
        if doubt.open and frame.sender in self._members:
            doubt._answered.add(frame.sender)
            if doubt._enough():
                self._deliver()
        super().up(frame)


class Sociable:
    """Is content with the answer of anybody: the others may have slept, too."""

    of = Doubt

    def _enough(self):
        if len(self._answered) > 1:
            self._answered |= set(self._members)
        return enough(self)


FOUND = {
    Sleepy: (0, "who went on, did not"),
    Trusting: (8, "who went on, did not"),
    Sociable: (44, "who went on, did not"),
}
"""By mutant: the seed of the scenario ``waking`` in which it is found, and words of the sentence that says so."""
