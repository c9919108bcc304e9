"""The dealing room on a terminal: drawn four times a second by a thread of its own, from the first moment on.

``picture`` is pure: a scene and a size in, lines out, never more of them than fit. A narrow terminal (80×24) has
everything in one column, the twenty dealers as a table of five conditions by four exchanges; a wide and high one has
two columns, a row for each dealer, and curves.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pluribus.cli.dealing.scene import Scene

DRAW_S = 0.25
WIDE, HIGH = 140, 40
LEFT = 92
"""Columns of the left side of a wide screen."""
BARS = "▁▂▃▄▅▆▇█"
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
ABOUT = (
    "Four exchanges publish prices. Each of twenty dealers gets what its own filter asks for.",
    "Three keepers have every price on disk before a dealer sees it. Spark reads that log live,",
    "and alerts dealers when a price has fallen five times in a row and then risen five times.",
)
ABOUT_NARROW = (
    "Four exchanges publish prices; twenty dealers get what their filters ask for.",
    "Keepers have each price on disk first. Spark reads their log and alerts dealers.",
)
KINDS = (
    "one stock, every price",
    "two stocks, when above 95",
    "a move by more than 0.5",
    "one letter, volume 500 up",
    "a range of prices, anywhere",
)


def picture(scene: Scene, width: int, height: int) -> RenderableType:
    """The scene, in at most ``height`` lines of at most ``width`` columns."""
    if width >= WIDE and height >= HIGH:
        return _wide(scene, width, height)
    return Group(*_narrow(scene, width, height))


# In one column


def _narrow(scene: Scene, width: int, height: int) -> list[Text]:
    top = [_title(scene, width), *(Text(line, "dim") for line in ABOUT_NARROW)]
    prices = [_rule("prices", width), *_prices(scene, 19, 0)]
    filters = [_filters_head(width), *_filters(scene)]
    below = [_rule(_lost(scene), width), _disk(scene), _spark(scene)]
    foot = [_keys(scene)]
    room = height - sum(map(len, (top, prices, filters, below, foot)))
    happened = [_happened(at, said) for at, said in list(scene.happened)[-2:]] if room > 2 else []
    alerts = _alerts(scene, max(room - len(happened), 0))
    blank = [Text()] * max(room - len(happened) - len(alerts), 0)
    lines = [*top, *prices, *filters, *below, *alerts, *happened, *blank, *foot]
    if len(lines) > height:  # lower than anybody's terminal: what matters most is at the top and the bottom
        lines = [*lines[: max(height - 1, 0)], *foot]
    return [_cut(line, width) for line in lines]


def _title(scene: Scene, width: int) -> Text:
    minutes, seconds = divmod(int(scene.seconds), 60)
    state = {"starts": "starting", "open": "open", "closes": "closing", "closed": "closed"}[scene.phase]
    mark = SPINNER[int(scene.seconds / DRAW_S) % len(SPINNER)]
    line = Text(f" {mark} Pluribus, the dealing room: {state}, {minutes}:{seconds:02}", "bold white on blue")
    ends = "it ends by itself " if scene.ends_by_itself else "Ctrl-C ends it "
    if scene.interrupts:
        ends = "Ctrl-C: closing, with a summary "
    line.append(ends.rjust(max(width - line.cell_len, 0)))
    return line


def _prices(scene: Scene, column: int, bars: int) -> list[Text]:
    from pluribus.cli.dealing.players import EXCHANGES

    head = Text()
    for exchange in EXCHANGES:
        away = scene.away.get(exchange, "")
        head.append(exchange.upper(), "bold red" if away else "bold")
        head.append(f" {away}".ljust(column + 1 - len(exchange)), "bold red")
    head.rstrip()
    lines = [head]
    for row in range(5):
        line = Text()
        for exchange, symbols in EXCHANGES.items():
            symbol = symbols[row]
            price, change = scene.prices.get(exchange, {}).get(symbol, (0.0, 0.0))
            style = "green" if change > 0 else "red" if change < 0 else "dim"
            shown = f"{price:8.2f}{change:+6.2f}" if price else "       –      "
            line.append(f"{symbol:<4}").append(shown, style)
            if bars:
                line.append(f" {_bar(list(scene.history.get(symbol, ()))[-bars:]):<{bars}}", style)
            line.append(" " * (column + 1 - 18 - (bars + 1 if bars else 0)))
        line.rstrip()
        lines.append(line)
    return lines


def _bar(values: list[float]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    scale = (len(BARS) - 1) / ((high - low) or 1.0)
    return "".join(BARS[int((value - low) * scale)] for value in values)


def _filters_head(width: int) -> Text:
    from pluribus.cli.dealing.players import EXCHANGES

    columns = "".join(f" {exchange}".rjust(12, "─") for exchange in EXCHANGES)
    return Text(f"{'── dealers by filter: got ':─<30}{columns} ".ljust(width, "─"), "blue")


def _filters(scene: Scene) -> list[Text]:
    from pluribus.cli.dealing.players import DEALERS_PER_DESK, EXCHANGES, dealers

    everybody, got = dealers(), scene.got
    lines = []
    for kind, about in enumerate(KINDS):
        line = Text(f"{about:<30}")
        for desk in range(len(EXCHANGES)):
            dealer = everybody[desk * DEALERS_PER_DESK + kind]
            line.append(f"{got.get(dealer.name, 0):>12,}", "cyan")
        lines.append(line)
    return lines


def _lost(scene: Scene) -> str:
    total = sum(scene.got.values())
    return f"{total:,} prices at dealers, {scene.gaps} lost"


def _disk(scene: Scene) -> Text:
    line = Text("on disk ", "bold").append(f"{scene.on_disk:,} prices", "cyan")
    line.append(f", {scene.disk_bytes / 1e6:.1f} MB; ")
    if not scene.keepers:
        return line.append("keepers start" if scene.phase == "starts" else "this process is the keeper")
    for place, keeper in enumerate(scene.keepers):
        line.append(", " if place else "keeper ").append(keeper.name.removeprefix("keeper-"))
        if keeper.name in scene.away:
            line.append(f" {scene.away[keeper.name]}", "bold red")
        elif keeper.role == "leader":
            line.append(" leads", "bold green")
        else:
            line.append(" follows" if keeper.here else " is away", "" if keeper.here else "red")
    return line


def _spark(scene: Scene) -> Text:
    return Text(scene.spark, "bold magenta" if scene.spark_live else "yellow")


def _alerts(scene: Scene, room: int) -> list[Text]:
    if room < 1:
        return []
    found = list(scene.alerts)[-room:] if room > 1 else list(scene.alerts)[-1:]
    if not found:
        starting = "no alert yet: Spark takes some seconds to start, and misses nothing"
        return [Text(starting if "no part" not in scene.spark else "no alerts without Spark", "dim")]
    lines = []
    for at, exchange, text in reversed(found):
        line = Text(f"{int(at) // 60}:{int(at) % 60:02} ", "dim").append("ALERT ", "bold magenta")
        lines.append(line.append(f"{exchange:<6} ").append(text))
    return lines


def _happened(at: float, sentence: str) -> Text:
    return Text(f"{int(at) // 60}:{int(at) % 60:02} ", "dim").append(sentence, "bold yellow")


def _keys(scene: Scene) -> Text:
    if scene.interrupts:
        return Text(" closing … (Ctrl-C again ends it at once)", "reverse")
    kills = " k kills the leading keeper   p kills a provider  " if scene.killing else ""
    return Text(f"{kills} Ctrl-C ends it, and counts ", "reverse")


def _rule(title: str, width: int) -> Text:
    return Text(f"── {title} ".ljust(width, "─"), "blue")


def _cut(line: Text, width: int) -> Text:
    line.no_wrap = True
    line.truncate(width, overflow="ellipsis")
    return line


# In two columns


def _wide(scene: Scene, width: int, height: int) -> RenderableType:
    right_width = width - LEFT - 2
    left = [_rule("prices", LEFT), *_prices(scene, 22, 3)]
    left += [_rule(f"dealers: what they asked for, and got; {_lost(scene)}", LEFT), *_dealers(scene)]
    left += [
        _rule(f"{scene.averages_count:,} averages by Spark, of ten seconds each; the last ones", LEFT),
        *_averages(scene),
    ]
    right = [_rule("on disk", right_width), *_keepers(scene)]
    right += [_rule("Spark", right_width), _spark(scene), _rule("what happened", right_width)]
    rows = height - 2 - len(ABOUT)
    happened = [_happened(at, said) for at, said in list(scene.happened)[-8:]]
    right += happened or [Text("nobody was killed yet", "dim")]
    right += [_rule(f"{scene.alerts_count:,} alerts by Spark, the last one first", right_width)]
    right += _alerts(scene, max(rows - len(right), 0))
    table = Table.grid(padding=(0, 2))
    table.add_column(width=LEFT, no_wrap=True)
    table.add_column(width=right_width, no_wrap=True)
    for place in range(rows):
        sides = (left[place] if place < len(left) else Text(), right[place] if place < len(right) else Text())
        table.add_row(_cut(sides[0], LEFT), _cut(sides[1], right_width))
    about = [_cut(Text(line, "dim"), width) for line in ABOUT]
    return Group(_cut(_title(scene, width), width), *about, table, _cut(_keys(scene), width))


def _dealers(scene: Scene) -> list[Text]:
    from pluribus.cli.dealing.players import dealers

    got, last = scene.got, scene.last
    lines = []
    for dealer in dealers():
        line = Text(f"{dealer.name.removeprefix('dealer-'):>2} {dealer.pattern:<18} ")
        line.append(f"{dealer.where:<39.39} ", "dim").append(f"{got.get(dealer.name, 0):>8,} ", "cyan")
        lines.append(line.append(f"{last.get(dealer.name, ''):<17}"))
    return lines


def _averages(scene: Scene) -> list[Text]:
    from pluribus.cli.dealing.players import EXCHANGES

    lines = []
    for row in range(5):
        line = Text()
        for symbols in EXCHANGES.values():
            mean = scene.averages.get(symbols[row])
            line.append(f"{symbols[row]:<4}").append("       –" if mean is None else f"{mean:8.2f}", "magenta")
            line.append(" " * 10)
        line.rstrip()
        lines.append(line)
    return lines


def _keepers(scene: Scene) -> list[Text]:
    lines = [Text(f"{scene.on_disk:,} prices", "cyan").append(f", {scene.disk_bytes / 1e6:.1f} MB", "")]
    if not scene.keepers:
        return [*lines, Text("keepers start" if scene.phase == "starts" else "this process is the keeper", "dim")]
    for keeper in scene.keepers:
        away = scene.away.get(keeper.name, "")
        line = Text(f"{keeper.name}  ")
        if away:
            line.append(f"{away:<9}", "bold red")
        else:
            line.append(
                "leads    " if keeper.role == "leader" else "follows  ", "bold green" if keeper.role == "leader" else ""
            )
        lines.append(line.append(f"{keeper.rows:>9,} rows of the log", "dim" if away else ""))
    return lines


# Drawing


class Screen:
    """Draws a scene on a terminal until it is left, and collects keys meanwhile."""

    def __init__(self, scene: Scene, console: Console | None = None) -> None:
        self._scene = scene
        self._console = console or Console(highlight=False)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, daemon=True)

    def __enter__(self) -> Screen:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(5.0)

    def _draw(self) -> None:
        with Live(console=self._console, screen=True, auto_refresh=False) as live, _keys_at_once() as key:
            while not self._over.is_set():
                width, height = self._console.size
                live.update(picture(self._scene, width, height), refresh=True)
                if pressed := key(DRAW_S):
                    self._scene.keys.append(pressed)


@contextmanager
def _keys_at_once() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for a key. Until the block ends, the terminal hands out keys without a
    return."""
    try:
        import termios
        import tty

        number = sys.stdin.fileno()
        before = termios.tcgetattr(number)
    except (ImportError, OSError, ValueError):  # no terminal to type on
        never = threading.Event()
        yield lambda seconds: "k" * never.wait(seconds)
        return

    def key(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return os.read(number, 1).decode(errors="replace") if ready else ""

    tty.setcbreak(number)
    try:
        yield key
    finally:
        with suppress(OSError):
            termios.tcsetattr(number, termios.TCSADRAIN, before)


class Lines:
    """The events of the room as plain lines, where there is no terminal, such as in a file."""

    def __init__(self, scene: Scene, write: Callable[[str], Any]) -> None:
        self._scene = scene
        self._write = write
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(5.0)

    def _tell(self) -> None:
        """Print a line when something happens, and every five seconds."""
        told, phase, next_s, spark = 0.0, "", 0.0, ""
        scene = self._scene
        while not self._over.wait(DRAW_S):
            lines = [sentence for at, sentence in list(scene.happened) if at > told]
            told = max([told, *(at for at, _ in list(scene.happened))])
            if scene.phase != phase:
                phase = scene.phase
                lines.append(f"the room {phase}" if phase != "open" else "the room is open")
            if scene.spark != spark and not scene.spark_live:
                spark = scene.spark
                lines.append(spark)
            if scene.phase == "open" and scene.seconds >= next_s:
                next_s = scene.seconds + 5.0
                lines.append(
                    f"{scene.on_disk:,} prices on disk, {_lost(scene)}, {scene.alerts_count} alerts; {scene.spark}"
                )
            for line in lines:
                self._write(f"{scene.seconds:5.1f} s  {line}")
