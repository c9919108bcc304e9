"""Handles: a handle stands for all objects with an interface, for the objects of a group, or for one object.

``await handle.method(…)`` broadcasts the invocation. Methods that the interface does not have are an
``AttributeError``, and arguments that do not fit are a ``TypeError``, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput
from ....objects.interfaces import ALL, NONE, RESULTS, UNI, bound, export

if TYPE_CHECKING:
    from .calls import ObjectCalls

Method = Callable[..., Coroutine[Any, Any, Any]]


class Handle:
    """Made by ``bus.omni``, ``bus.group_handle`` and ``bus.uni``.

    ``results`` says what a call returns. ``"none"``: None, as soon as the invocation is sent. ``"first"``: the first
    good result; if all objects failed, an exception of theirs is raised. ``"all"``: the results of all objects, with an
    exception in the place of a failed one.
    """

    def __init__(
        self, calls: ObjectCalls, how: str, interface: type, receiver: str, results: str, timeout: float | None
    ) -> None:
        if results not in RESULTS:
            raise BadInput(f"results={results!r} is none of {', '.join(RESULTS)}: choose one of them")
        if how == UNI and results == NONE:
            raise BadInput("a uni handle awaits its result: results='first', or send a message instead")
        self._calls = calls
        self._how = how
        self._export = export(interface)
        self._receiver = receiver
        self._results = results
        self._timeout = timeout

    def __getattr__(self, name: str) -> Method:
        if name.startswith("_"):
            raise AttributeError(name)
        method = self._export.methods.get(name)
        if method is None:
            raise AttributeError(f"{self._export.interface} has no method {name!r}")

        async def call(*args: Any, **named: Any) -> Any:
            bound(self._export.interface, method, args, named)
            found = await self._calls.invoke(
                self._how, self._export, self._receiver, self._results, name, args, named, self._timeout
            )
            if self._results == NONE:
                return None
            if self._results == ALL:
                return [value for _, _, value in found]
            return found[0][2]

        return call

    def __repr__(self) -> str:
        of = f" of {self._receiver!r}" if self._receiver else ""
        return f"<{self._how} handle of {self._export.interface}{of}, results {self._results}>"
