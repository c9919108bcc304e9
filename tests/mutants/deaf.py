"""Members that do not hear themselves, with one mistake each. Campaigns must find them."""

from pluribus.layers.causal import Causal
from pluribus.layers.reliable import Reliable


class Selfless(Causal):
    """Does not count its own messages where they do not come back: what answers them waits for ever."""

    def event_down(self, event):
        self.tell_down(event)


class Secretive(Reliable):
    """Does not keep for those who miss it what it does not hear itself."""

    def down(self, frame):
        super().down(frame)
        out = self._out.get((frame.group, frame.to))
        if out is not None and frame.group in self._deaf and out.kept:
            out.kept_bytes -= out.kept.pop().size


FOUND = {
    Selfless: (5, "only one delivered"),
    Secretive: (25, "still waits"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
