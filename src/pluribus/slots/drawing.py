"""A bus as a picture: slots as boxes with their ports, connections as curves, laid out from left to right.

A slot stands one column right of the slots that send to it; connections that close a circle are left out of that. In a
column slots are ordered by the middle of their neighbours in the column before, which keeps most curves from crossing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from html import escape

from .plan import INVOKED, MANY, REQUIRED, SHADOW, Connection, End, Plan, Slot

BOX, HEAD, ROW, GAP_X, GAP_Y, MARGIN = 190, 44, 20, 150, 34, 40
FILLS = {REQUIRED: "#dcecf9", INVOKED: "#fdebd0", SHADOW: "#eeeeee"}
PLAIN = "#e8f5e9"
EDGE = "#4a6785"


def draw(
    plan: Plan, occupants: Mapping[str, int] | None = None, connections: Collection[Connection] | None = None
) -> str:
    """An SVG. ``occupants`` gives the present number in each slot, ``connections`` replaces those of the file."""
    routes = plan.connections if connections is None else tuple(connections)
    columns = _columns(plan, routes)
    places = _places(columns)
    width = max((x for x, _ in places.values()), default=0) + BOX + MARGIN
    height = max((y + _height(slot) for slot in plan.slots for y in (places[slot.name][1],)), default=0) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f"<title>{escape(plan.name)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{EDGE}"/></marker></defs>',
        f'<text x="{MARGIN}" y="24" font-size="16">{escape(plan.name)}{" (static)" if plan.static else ""}</text>',
    ]
    ports = {end: spot for slot in plan.slots for end, spot in _ports(slot, *places[slot.name]).items()}
    parts += [_curve(found, ports) for found in routes if found.source in ports and found.target in ports]
    for slot in plan.slots:
        parts += _box(slot, *places[slot.name], None if occupants is None else occupants.get(slot.name, 0))
    return "\n".join([*parts, "</svg>", ""])


def _columns(plan: Plan, routes: Collection[Connection]) -> list[list[Slot]]:
    """Slots by the length of the longest way that leads to them; circles are cut where they close."""
    after: dict[str, list[str]] = {slot.name: [] for slot in plan.slots}
    for found in routes:
        if found.source.slot in after and found.target.slot in after and found.source.slot != found.target.slot:
            after[found.source.slot].append(found.target.slot)
    depth: dict[str, int] = dict.fromkeys(after, 0)
    order, seen = [], set()
    for root in after:
        stack = [(root, iter(after[root]))] if root not in seen else []
        seen.add(root)
        while stack:
            name, rest = stack[-1]
            following = next((other for other in rest if other not in seen), None)
            if following is None:
                order.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, iter(after[following])))
    order.reverse()
    rank = {name: at for at, name in enumerate(order)}
    for name in order:
        for other in after[name]:
            if rank[other] > rank[name]:
                depth[other] = max(depth[other], depth[name] + 1)
    columns: list[list[Slot]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for slot in plan.slots:
        columns[depth[slot.name]].append(slot)
    row: dict[str, float] = {}
    for column in columns:
        before = {
            slot.name: [
                row[found.source.slot]
                for found in routes
                if found.target.slot == slot.name and found.source.slot in row
            ]
            for slot in column
        }
        column.sort(key=lambda slot: sum(before[slot.name]) / len(before[slot.name]) if before[slot.name] else 0.0)
        row.update({slot.name: float(at) for at, slot in enumerate(column)})
    return columns


def _places(columns: list[list[Slot]]) -> dict[str, tuple[int, int]]:
    heights = [sum(_height(slot) + GAP_Y for slot in column) - GAP_Y for column in columns]
    tallest = max(heights, default=0)
    places = {}
    for at, column in enumerate(columns):
        y = MARGIN + (tallest - heights[at]) // 2
        for slot in column:
            places[slot.name] = (MARGIN + at * (BOX + GAP_X), y)
            y += _height(slot) + GAP_Y
    return places


def _height(slot: Slot) -> int:
    sending = sum(port.sends for port in slot.ports)
    return HEAD + ROW * max(sending, len(slot.ports) - sending) + 8


def _ports(slot: Slot, x: int, y: int) -> dict[End, tuple[int, int]]:
    """Ports that receive are on the left, those that send on the right."""
    found: dict[End, tuple[int, int]] = {}
    counts = {True: 0, False: 0}
    for port in slot.ports:
        found[End(slot.name, port.name)] = (x + BOX * port.sends, y + HEAD + ROW * counts[port.sends] + 4)
        counts[port.sends] += 1
    return found


def _box(slot: Slot, x: int, y: int, occupants: int | None) -> list[str]:
    dash = ' stroke-dasharray="5 3"' if slot.kind != REQUIRED else ""
    greatest = "many" if slot.greatest == MANY else str(slot.greatest)
    inside = f"{slot.kind} {slot.least}..{greatest}" + ("" if occupants is None else f", {occupants} in it")
    middle = x + BOX // 2
    empty = occupants == 0 and slot.kind == REQUIRED
    stroke = "#c0392b" if empty else EDGE
    parts = [
        f'<g id="slot-{escape(slot.name)}"><rect x="{x}" y="{y}" width="{BOX}" height="{_height(slot)}" rx="6"'
        f' fill="{FILLS.get(slot.kind, PLAIN)}" stroke="{stroke}"{dash}/>',
        f'<text x="{middle}" y="{y + 18}" text-anchor="middle" font-weight="bold">{escape(slot.name)}</text>',
        f'<text x="{middle}" y="{y + 34}" text-anchor="middle" font-size="10" fill="#555">{escape(inside)}</text>',
    ]
    for end, (px, py) in _ports(slot, x, y).items():
        left = px == x
        anchor, tx = ("start", px + 8) if left else ("end", px - 8)
        port = slot.port(end.port)
        shown = end.port + (f" : {port.type}" if port is not None and port.type else "")
        parts.append(f'<circle cx="{px}" cy="{py}" r="4" fill="{EDGE}"/>')
        parts.append(f'<text x="{tx}" y="{py + 4}" text-anchor="{anchor}">{escape(shown)}</text>')
    return [*parts, "</g>"]


def _curve(found: Connection, ports: Mapping[End, tuple[int, int]]) -> str:
    (x1, y1), (x2, y2) = ports[found.source], ports[found.target]
    bend = max((x2 - x1) // 2, 60)
    about = f"{found} capacity {found.capacity}, {found.ttl_s:g} s"
    return (
        f'<path d="M{x1 + 4} {y1} C{x1 + bend} {y1}, {x2 - bend} {y2}, {x2 - 4} {y2}" fill="none" stroke="{EDGE}"'
        f' marker-end="url(#tip)"><title>{escape(about)}</title></path>'
    )
