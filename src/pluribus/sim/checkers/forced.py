"""The promises of a log that an operator forced to go on, after most of its voters were gone for good.

Until then all promises of a log hold. From then on there is one history again; of the commands before, every one that a
remaining voter had applied is still there, at its place. Commands that only the others knew to be committed may be
gone, and other commands may take their places.

It expects a happening ``forced`` (``members`` are those who were left), besides those that ``logs`` names.
"""

from __future__ import annotations

from ..machinery.history import Happening, History
from .delivery import Checker
from .logs import ok_of


def forced_too(checker: Checker, *, before: bool = True) -> Checker:
    """The same promise for a history in which a log may have been forced, once; ``before``: for the time until then, by
    itself, too."""

    def check(history: History) -> int:
        at = next((at for at, h in enumerate(history.happenings) if h.what == "forced"), None)
        if at is None:
            return checker(history)
        until = History()
        until.happenings = [h for h in history.happenings[:at] if h.what in ("apply", "restore", "led")]
        return (checker(until) if before else 0) + checker(_after(history, at))

    check.__doc__ = checker.__doc__
    return check


def _after(history: History, at: int) -> History:
    """Without what those who were gone did alone."""
    earlier, forced = history.happenings[:at], history.happenings[at]
    left = set(forced.members)
    index = max((_known(h) for h in earlier if h.member in left and h.what in ("apply", "restore")), default=0)
    kept_ids = {h.id for h in earlier if h.what == "ok" and _behind(h) <= index}
    after = History()
    for h in earlier:
        if h.what in ("invoke", "ok"):
            if h.id in kept_ids:
                after.add(h)
        elif h.what in ("apply", "restore") and h.member in left:
            after.add(h)
    after.happenings += history.happenings[at + 1 :]
    return after


def _known(h: Happening) -> int:
    return h.id[0] + (h.what == "apply")


def _behind(h: Happening) -> int:
    """The index behind what a client saw."""
    ok = ok_of(h.body)
    return ok.index + 1 if ok.value is None else ok.index
