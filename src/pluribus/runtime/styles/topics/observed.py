"""An object that others watch: setting an attribute publishes the change, if it is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput
from ....pubsub.objects import Changed, topic_of

if TYPE_CHECKING:
    from .pubsub import Topics


class Observed:
    """Made by ``bus.observed(name, ...)``. ``observed.price = 101`` publishes the change to every watcher;
    ``await observed.set(price=101, volume=7)`` waits until the change is admitted."""

    def __init__(self, topics: Topics, name: str) -> None:
        for attribute, value in (("_topics", topics), ("_name", name), ("_values", {})):
            object.__setattr__(self, attribute, value)  # not a property that others watch

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = object.__getattribute__(self, "_values")
        if name not in values:
            raise AttributeError(f"{self._name!r} has no property {name!r}: set it first")
        return values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        changed = self._changed(name, value)
        if changed is not None:
            self._topics.publish_soon(topic_of(self._name, name), changed, retain=True)
            self._values[name] = value

    async def set(self, **values: Any) -> None:
        for name, value in values.items():
            changed = self._changed(name, value)
            if changed is not None:
                await self._topics.publish(topic_of(self._name, name), changed, retain=True)
                self._values[name] = value

    def _changed(self, name: str, value: Any) -> Changed | None:
        if name.startswith("_") or name in ("set", "properties"):
            raise BadInput(f"{name!r} cannot be watched: choose another name for the property")
        before = self._values.get(name)
        if name in self._values and before == value:
            return None
        return Changed(self._name, name, value, before)

    def properties(self) -> dict[str, Any]:
        return dict(self._values)

    def __repr__(self) -> str:
        return f"<observed {self._name!r} {self._values}>"
