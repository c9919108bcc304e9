"""The state of the dealing room that is shown. The room writes it, the screen draws it, each in a thread of its own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

ALERTS_SHOWN_MAX = 100
HAPPENED_MAX = 20
HISTORY_MAX = 24


@dataclass
class Keeper:
    """A keeper as the leader sees it."""

    name: str
    role: str
    rows: int
    here: bool


@dataclass
class Scene:
    began: float = field(default_factory=perf_counter)
    phase: str = "starts"
    """The phase of the room: ``starts``, ``open``, ``closes`` or ``closed``."""
    ends_by_itself: bool = False
    killing: bool = False
    """True if keys kill processes."""
    desks: dict[str, dict[str, Any]] = field(default_factory=dict)
    prices: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """By exchange and symbol: the price, and its last change."""
    history: dict[str, deque[float]] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)
    """Processes that do not run now, with the reason."""
    keepers: list[Keeper] = field(default_factory=list)
    on_disk: int = 0
    disk_bytes: int = 0
    published: int = 0
    spark: str = "Spark takes no part"
    spark_live: bool = False
    alerts: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=ALERTS_SHOWN_MAX))
    """The latest alerts: time, exchange, sentence."""
    alerts_count: int = 0
    first_alert_s: float | None = None
    """When the first one came, since the demo was started."""
    averages: dict[str, float] = field(default_factory=dict)
    """By symbol: the mean of the latest window that Spark reported."""
    averages_count: int = 0
    happened: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=HAPPENED_MAX))
    keys: deque[str] = field(default_factory=lambda: deque(maxlen=HAPPENED_MAX))
    """Keys that were pressed and that the room has not handled."""
    interrupts: int = 0

    @property
    def seconds(self) -> float:
        return perf_counter() - self.began

    def happens(self, sentence: str) -> None:
        self.happened.append((self.seconds, sentence))

    @property
    def got(self) -> dict[str, int]:
        return {dealer: count for desk in list(self.desks.values()) for dealer, count in desk["got"].items()}

    @property
    def last(self) -> dict[str, str]:
        return {dealer: text for desk in list(self.desks.values()) for dealer, text in desk["last"].items()}

    @property
    def gaps(self) -> int:
        return sum(desk["gaps"] for desk in list(self.desks.values()))
