"""The flow of a backbone as a picture, drawn from its configuration by ``pluribus pipeline picture CONFIG``.

Columns from left to right: topics, bronze, silver, enrichment, gold, answers. A line goes from each input to its
result. Dead events leave below silver.
"""

from __future__ import annotations

from html import escape

from .parts import Configuration, Gold, Silver

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 190, 58, 60, 18, 24
TITLE = 34
COLOURS = {
    "topic": "#e8eef7",
    "bronze": "#f2dfc8",
    "silver": "#e6e8eb",
    "dead": "#f6d5d5",
    "enrich": "#dff0e4",
    "gold": "#f7ecc0",
}
HEADS = ("topics", "bronze", "silver", "enrichment", "gold", "answers")


class Box:
    def __init__(self, column: int, colour: str, name: str, *lines: str) -> None:
        self.column = column
        self.colour = colour
        self.name = name
        self.lines = lines
        self.row = 0.0

    @property
    def x(self) -> float:
        return MARGIN + self.column * (WIDTH + GAP_X)

    @property
    def y(self) -> float:
        return MARGIN + TITLE + self.row * (HEIGHT + GAP_Y)


def picture(configuration: Configuration) -> str:
    """The SVG."""
    boxes: dict[str, Box] = {}
    lines: list[tuple[str, str, bool]] = []
    boxes["bronze"] = Box(1, "bronze", "bronze", "every event, by topic and day", f"every {configuration.tiers.every}")
    for silver in configuration.silver:
        boxes[f"in {silver.name}"] = Box(0, "topic", silver.topics)
        boxes[silver.name] = Box(2, "silver", silver.name, *_expected(silver))
        lines += [(f"in {silver.name}", "bronze", False), (f"in {silver.name}", silver.name, False)]
    boxes["dead"] = Box(2, "dead", configuration.prefix("dead") + "#", "with rule and reason")
    lines += [(silver.name, "dead", True) for silver in configuration.silver]
    for step in configuration.enrich:
        what = f"with {step.other}, within {step.within}" if step.other else f"with {step.table.rpartition('/')[2]}"
        boxes[step.name] = Box(3, "enrich", step.name, what, f"on {', '.join(step.on)}")
        lines += [(name, step.name, False) for name in ([step.of] if isinstance(step.of, str) else step.of)]
        lines += [(step.other, step.name, False)] if step.other else []
    for gold in configuration.gold:
        boxes[f"gold {gold.name}"] = Box(4, "gold", gold.name, *_computed(gold))
        boxes.setdefault(f"out {gold.topic}", Box(5, "topic", gold.topic))
        lines += [(name, f"gold {gold.name}", False) for name in ([gold.of] if isinstance(gold.of, str) else gold.of)]
        lines.append((f"gold {gold.name}", f"out {gold.topic}", False))
    rows = _placed(boxes)
    width = MARGIN * 2 + len(HEADS) * WIDTH + (len(HEADS) - 1) * GAP_X
    height = MARGIN * 2 + TITLE + rows * (HEIGHT + GAP_Y)
    return _svg(configuration.name, boxes, lines, width, height)


def _expected(silver: Silver) -> tuple[str, str]:
    rules = len(silver.rules)
    keys = f", unique {', '.join(silver.unique)}" if silver.unique else ""
    return f"{rules} rule{'' if rules == 1 else 's'}{keys}", f"late after {silver.late}"


def _computed(gold: Gold) -> tuple[str, ...]:
    what = {
        "windows": f"windows of {gold.width}",
        "top": f"best {gold.k} by {gold.score}, {gold.width}",
        "anomalies": f"strangest {gold.value}, {gold.width}",
        "last": "last value",
        "pattern": "row pattern",
        "where": gold.where,
    }[gold.kind]
    return (what, f"by {', '.join(gold.by)}") if gold.by else (what,)


def _placed(boxes: dict[str, Box]) -> int:
    """Each column from the top; how many rows the longest has."""
    used: dict[int, int] = {}
    for box in boxes.values():
        box.row = used.get(box.column, 0)
        used[box.column] = used.get(box.column, 0) + 1
    rows = max(used.values())
    for box in boxes.values():
        box.row += (rows - used[box.column]) / 2
    return rows


def _svg(name: str, boxes: dict[str, Box], lines: list[tuple[str, str, bool]], width: float, height: float) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="sans-serif" font-size="12">',
        f"<title>The backbone {escape(name)}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for column, head in enumerate(HEADS):
        x = MARGIN + column * (WIDTH + GAP_X) + WIDTH / 2
        parts.append(f'<text x="{x:g}" y="{MARGIN + 12}" text-anchor="middle" font-weight="bold">{head}</text>')
    for source, target, down in lines:
        one, other = boxes[source], boxes[target]
        x, y = one.x + (WIDTH / 2 if down else WIDTH), one.y + (HEIGHT if down else HEIGHT / 2)
        to_x, to_y = other.x + (WIDTH / 2 if down else 0), other.y + (0 if down else HEIGHT / 2)
        bend = GAP_X / 2
        path = (
            f"M{x:g},{y:g} L{to_x:g},{to_y:g}"
            if down
            else (f"M{x:g},{y:g} C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}")
        )
        parts.append(f'<path d="{path}" fill="none" stroke="#7a8699" stroke-width="1.3"/>')
    for box in boxes.values():
        parts.append(
            f'<rect x="{box.x:g}" y="{box.y:g}" width="{WIDTH}" height="{HEIGHT}" rx="7" '
            f'fill="{COLOURS[box.colour]}" stroke="#7a8699"/>'
        )
        for number, text in enumerate((box.name, *box.lines)):
            weight = ' font-weight="bold"' if number == 0 else ' fill="#444"'
            parts.append(
                f'<text x="{box.x + WIDTH / 2:g}" y="{box.y + 18 + 16 * number:g}" text-anchor="middle"{weight}>'
                f"{escape(_short(text))}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])


def _short(text: str) -> str:
    return text if len(text) <= 28 else f"{text[:27]}…"
