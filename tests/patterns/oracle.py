"""SQL's rules read aloud: for each row, try every way in the order of preference, over the whole sequence. Slow, plain.

A way is the list of variables of its rows. Fields are looked up by walking over that list.
"""

from pluribus.filters.tree import Constant, Field, replace_leaves
from pluribus.patterns.tree import Alternation, Repeat, Sequence, SkipTo, Variable
from tests.filters import oracle as filters


def matches(pattern, events):
    """(partition, measures) of each match; with ALL ROWS of each row of it, and the event."""
    clauses = pattern.clauses
    found = []
    partitions = {}
    for event in events:
        partitions.setdefault(tuple(filters.read(event, path) for path in clauses.partition), []).append(event)
    for key, rows in partitions.items():
        rows.sort(key=lambda event: [filters.read(event, path) for path in clauses.order])
        found += [(key, *answer) for answer in _partition(clauses, rows)]
    return found


def _partition(clauses, rows):
    start, number = 0, 0
    while start < len(rows):
        way = next((way for way in _ways(clauses, rows, start, clauses.rows, []) if way), None)
        if way is None:
            start += 1
            continue
        number += 1
        yield from _answers(clauses, rows, start, way, number)
        start += _skip(clauses, way)


def _skip(clauses, way):
    if clauses.skip is SkipTo.PAST_LAST_ROW:
        return len(way)
    members = clauses.subsets.get(clauses.skip_variable, {clauses.skip_variable})
    places = [place for place, name in enumerate(way) if name in members]
    if clauses.skip is SkipTo.NEXT_ROW or not places:
        return 1
    return max(1, places[0] if clauses.skip is SkipTo.FIRST else places[-1])


def _answers(clauses, rows, start, way, number):
    if not clauses.all_rows:
        yield tuple(_value(clauses, rows, start, way, measure.value, number) for measure in clauses.measures), None
        return
    for count in range(1, len(way) + 1):
        values = tuple(
            _value(clauses, rows, start, way if measure.final else way[:count], measure.value, number)
            for measure in clauses.measures
        )
        yield values, rows[start + count - 1]


# --- ways -----------------------------------------------------------------------------------------------------------


def _ways(clauses, rows, start, part, way):
    """Every way to go on from ``way`` through ``part``, the preferred first."""
    match part:
        case Variable(name):
            index = start + len(way)
            if index < len(rows) and _fits(clauses, rows, start, [*way, name]):
                yield [*way, name]
        case Sequence(parts):
            yield from _sequence(clauses, rows, start, parts, way)
        case Alternation(choices):
            for choice in choices:
                yield from _ways(clauses, rows, start, choice, way)
        case Repeat():
            yield from _rounds(clauses, rows, start, part, way, 0)


def _sequence(clauses, rows, start, parts, way):
    if not parts:
        yield way
        return
    for longer in _ways(clauses, rows, start, parts[0], way):
        yield from _sequence(clauses, rows, start, parts[1:], longer)


def _rounds(clauses, rows, start, part, way, done):
    if done < part.least:
        for longer in _ways(clauses, rows, start, part.part, way):
            yield from _rounds(clauses, rows, start, part, longer, done + 1)
        return
    if not part.greedy:
        yield way
    if part.most is None or done < part.most:
        for longer in _ways(clauses, rows, start, part.part, way):
            if len(longer) > len(way):
                yield from _rounds(clauses, rows, start, part, longer, done + 1)
    if part.greedy:
        yield way


def _fits(clauses, rows, start, way):
    index = start + len(way) - 1
    (time,) = clauses.order[0]
    if clauses.within_s is not None and rows[index][time] - rows[start][time] > clauses.within_s:
        return False
    if clauses.within_rows is not None and len(way) > clauses.within_rows:
        return False
    condition = clauses.define.get(way[-1])
    return condition is None or _value(clauses, rows, start, way, condition, 0) is True


# --- values ---------------------------------------------------------------------------------------------------------


def _value(clauses, rows, start, way, tree, number):
    event = {}

    def known(leaf):
        if not isinstance(leaf, Field):
            return leaf
        name = f"f{len(event)}"
        event[name] = _field(clauses, rows, start, way, leaf, number)
        return Field((name,), leaf.kind)

    renamed = replace_leaves(tree, known)
    if isinstance(renamed, Field):
        return event[renamed.path[0]]
    return renamed.value if isinstance(renamed, Constant) else filters.evaluate(renamed, event)


def _field(clauses, rows, start, way, field, number):
    functions = [name for name, _ in field.via]
    if functions == ["MATCH_NUMBER"]:
        return number
    if functions == ["CLASSIFIER"]:
        return way[-1]
    path = field.path
    names = {*(each for each in way), *clauses.subsets, *clauses.define, *_names(clauses.rows)}
    members = None
    if path and path[0] in names and (len(path) > 1 or functions == ["COUNT"]):
        members, path = clauses.subsets.get(path[0], {path[0]}), path[1:]
    chosen = [start + place for place, name in enumerate(way) if members is None or name in members]
    if functions and functions[0] in ("COUNT", "SUM", "AVG", "MIN", "MAX"):
        return _aggregate(functions[0], [filters.read(rows[index], path) if path else 0 for index in chosen])
    back, logical, count = 0, "LAST", 0
    for name, given in field.via:
        if name == "PREV":
            back = given or 1
        else:
            logical, count = name, given
    if len(chosen) <= count:
        return None
    index = chosen[count] if logical == "FIRST" else chosen[-1 - count]
    return filters.read(rows[index - back], path) if index >= back else None


def _aggregate(function, values):
    if function == "COUNT":
        return sum(value is not None for value in values)
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not numbers:
        return None
    if function in ("MIN", "MAX"):
        return min(numbers) if function == "MIN" else max(numbers)
    total = 0.0
    for value in numbers:
        total += value
    return total if function == "SUM" else total / len(numbers)


def _names(rows):
    match rows:
        case Variable(name):
            return {name}
        case Sequence(parts) | Alternation(parts):
            return set().union(*map(_names, parts))
        case Repeat(part):
            return _names(part)
