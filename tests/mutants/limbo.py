"""Total order with one mistake each about what is in limbo. Campaigns must find them."""

from pluribus.layers.total import Total


class Amnesiac(Total):
    """Goes to the next primary with nothing of the last one."""

    def _leave_limbo(self, limbo, upto):
        super()._leave_limbo(limbo, (0, 0))


class Lavish(Total):
    """Delivers all that it has, and not only what everybody has."""

    def _leave_limbo(self, limbo, upto):
        super()._leave_limbo(limbo, limbo.held if any(upto) else upto)


FOUND = {
    Amnesiac: (2, "had delivered"),
    Lavish: (0, "with different messages"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
