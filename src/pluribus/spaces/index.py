"""Finding tuples by templates, and templates by tuples, without a scan of either.

Theory of operation
-------------------
*Shapes.* Tuples of the same types form a shape, and so do entries of the same class and types. A template is tried on
the shapes of its arity or class, which are few.

*Signatures.* The fields of which a template gives the value are its signature in a shape. For each signature that was
asked for there is a dictionary from those values to the numbers of the tuples that have them, in the order in which
they were written. So the oldest match of a template of values and types costs one look, whatever the size of the space.
A signature is indexed when it is first asked for, which costs one pass over its shape; the least used of more than
``SIGNATURES_MAX`` makes room.

*Ranges.* A condition that bounds a field (``f1 > 100``) finds the tuples in the order of that field, from the lowest.
The rest of the condition is tried on those.

*Wishes* are the other way round: which waiting takes want a new tuple. Templates of the same form (which fields are
given, which are types) share a dictionary by the given values; a new tuple costs one look for each form.

The result of a search depends only on the tuples that are there, and not on earlier searches: replicas may have
different signatures and find the same tuples.

Bounded: ``SHAPES_MAX`` shapes, then a tuple of yet another shape is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any, Generic, TypeVar

from msgspec.structs import force_setattr

from .conditions import Range, predicate_of, range_of
from .sorted import Sorted
from .templates import ARITY_ANY, Template
from .values import FieldValue, Item, condition_view, is_of, plain_of

SHAPES_MAX = 16_384
SIGNATURES_MAX = 32
"""Signatures of one shape, at most."""
NUMERIC = ("int", "float", "datetime")

_Key = bytes | tuple[bytes, ...]
"""The values at some places; of one place the value itself, which is an object fewer for each tuple."""
_Bucket = int | Sorted
"""The numbers of tuples; a single one is stored as the number itself."""


class Shape:
    """All tuples of one combination of types."""

    __slots__ = ("_ranges", "_signatures", "kinds", "names", "numbers", "of")

    def __init__(self, item: Item) -> None:
        self.of = item.of
        self.names = item.names
        self.kinds = tuple(field.kind for field in item.fields)
        self.numbers = Sorted()
        self._signatures: OrderedDict[tuple[int, ...], dict[_Key, _Bucket]] = OrderedDict()
        self._ranges: OrderedDict[tuple[tuple[int, ...], int], dict[_Key, Sorted]] = OrderedDict()

    def add(self, number: int, item: Item) -> None:
        self._share(item)
        self.numbers.add(number)
        fields = item.fields
        for signature, buckets in self._signatures.items():
            _add(buckets, _key_of(fields, signature), number)
        for (signature, at), ordered in self._ranges.items():
            value = _comparable(fields[at])
            if value is not None:
                ordered.setdefault(_key_of(fields, signature), Sorted()).add((value, number))

    def remove(self, number: int, item: Item) -> None:
        self.numbers.remove(number)
        fields = item.fields
        for signature, buckets in self._signatures.items():
            _remove(buckets, _key_of(fields, signature), number)
        for (signature, at), ordered in self._ranges.items():
            value = _comparable(fields[at])
            if value is not None:
                key = _key_of(fields, signature)
                ordered[key].remove((value, number))
                if not len(ordered[key]):
                    del ordered[key]

    def _share(self, item: Item) -> None:
        """All tuples of a shape have one object for each name in it. Names that came in several messages are several
        objects, which cost memory, and a read would have to touch them."""
        for field, kind in zip(item.fields, self.kinds, strict=True):
            if field.kind is not kind:
                force_setattr(field, "kind", kind)
        if item.of and item.names is not self.names:
            force_setattr(item, "of", self.of)
            force_setattr(item, "names", self.names)

    def bucket(self, signature: tuple[int, ...], key: _Key, items: Callable[[int], Item]) -> _Bucket | None:
        """The tuples that have these values at these places."""
        if not signature:
            return self.numbers if len(self.numbers) else None
        buckets = self._signatures.get(signature)
        if buckets is None:
            buckets = self._signatures[signature] = {}
            for number in self.numbers:
                fields = items(number).fields
                _add(buckets, _key_of(fields, signature), number)
            if len(self._signatures) > SIGNATURES_MAX:
                self._signatures.popitem(last=False)
        elif len(self._signatures) > 1:
            self._signatures.move_to_end(signature)
        return buckets.get(key)

    def ordered(self, signature: tuple[int, ...], at: int, key: _Key, items: Callable[[int], Item]) -> Sorted | None:
        """The same tuples, in the order of the field at a place: pairs of its value and the number."""
        ordered = self._ranges.get((signature, at))
        if ordered is None:
            made: dict[_Key, list[tuple[Any, int]]] = {}
            for number in self.numbers:
                fields = items(number).fields
                value = _comparable(fields[at])
                if value is not None:
                    made.setdefault(_key_of(fields, signature), []).append((value, number))
            ordered = self._ranges[signature, at] = {one: Sorted(pairs) for one, pairs in made.items()}
            if len(self._ranges) > SIGNATURES_MAX:
                self._ranges.popitem(last=False)
        elif len(self._ranges) > 1:
            self._ranges.move_to_end((signature, at))
        return ordered.get(key)

    def validate(self) -> None:
        self.numbers.validate()
        for buckets in self._signatures.values():
            found = [one for bucket in buckets.values() for one in ([bucket] if isinstance(bucket, int) else bucket)]
            assert sorted(found) == list(self.numbers)
        for ordered in self._ranges.values():
            assert {number for pairs in ordered.values() for _, number in pairs} <= set(self.numbers)


def _key_of(fields: Sequence[FieldValue], signature: tuple[int, ...]) -> _Key:
    if len(signature) == 1:
        return fields[signature[0]].raw
    return tuple([fields[at].raw for at in signature])


def _add(buckets: dict[_Key, _Bucket], key: _Key, number: int) -> None:
    bucket = buckets.get(key)
    if bucket is None:
        buckets[key] = number
    elif isinstance(bucket, int):
        buckets[key] = Sorted((bucket, number))
    else:
        bucket.add(number)


def _remove(buckets: dict[_Key, _Bucket], key: _Key, number: int) -> None:
    bucket = buckets[key]
    if isinstance(bucket, int):
        del buckets[key]
    else:
        bucket.remove(number)
        if not len(bucket):
            del buckets[key]


def _comparable(field: FieldValue) -> Any:
    """A number or a text that can be put in order; None for any other value, and for NaN."""
    if field.kind == "str":
        return plain_of(field)
    if field.kind in NUMERIC:
        value = plain_of(field)
        value = value.timestamp() if field.kind == "datetime" else value
        return value if value == value else None
    return None


class TupleIndex:
    """Items by number. The writer gives the numbers, which say which item is older."""

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._by_arity: dict[int, list[Shape]] = {}
        """By arity of tuples; the shapes of entries are under ``ARITY_ANY``."""

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, number: int) -> bool:
        return number in self.items

    @property
    def full(self) -> bool:
        return len(self._shapes) >= SHAPES_MAX

    def takes(self, item: Item) -> bool:
        """True if there is room for the shape of an item."""
        return not self.full or _shape_of(item) in self._shapes

    def add(self, number: int, item: Item) -> None:
        key = _shape_of(item)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(item)
            self._by_arity.setdefault(ARITY_ANY if item.of else len(item.fields), []).append(shape)
        self.items[number] = item
        shape.add(number, item)

    def remove(self, number: int) -> Item:
        item = self.items[number]
        key = _shape_of(item)
        shape = self._shapes[key]
        shape.remove(number, item)
        del self.items[number]
        if not len(shape.numbers):
            del self._shapes[key]
            arity = ARITY_ANY if item.of else len(item.fields)
            self._by_arity[arity].remove(shape)
            if not self._by_arity[arity]:
                del self._by_arity[arity]
        return item

    def find(self, template: Template, allowed: Callable[[int], bool] | None = None) -> int | None:
        """The oldest item that matches; with a range in the condition, the oldest of those with the lowest value."""
        best: tuple[Any, int] | None = None
        for pair in self._firsts(template, allowed):
            if best is None or pair < best:
                best = pair
        return None if best is None else best[1]

    def rank(self, template: Template, number: int) -> tuple[Any, int]:
        """The rank of a matching item among the others: the lowest is found first."""
        bounds = range_of(template.where) if template.where else None
        if bounds is None:
            return (0, number)
        item = self.items[number]
        names = item.names or tuple(f"f{at}" for at in range(len(item.fields)))
        value = _comparable(item.fields[names.index(bounds.name)]) if bounds.name in names else None
        return (0 if value is None else value, number)

    def _firsts(self, template: Template, allowed: Callable[[int], bool] | None) -> Iterator[tuple[Any, int]]:
        for shape, signature, key in self._looks(template):
            for pair in self._candidates(template, shape, signature, key, 0):
                if allowed is None or allowed(pair[1]):
                    yield pair
                    break

    def matches(self, template: Template, after: int = -1) -> Iterator[int]:
        """All matches younger than ``after``, in any order; the index must not change meanwhile."""
        for shape, signature, key in self._looks(template):
            for _, number in self._candidates(template, shape, signature, key, after + 1):
                yield number

    def page(
        self, template: Template, after: int, most: int, allowed: Callable[[int], bool] | None = None
    ) -> list[int]:
        """The oldest ``most`` matches younger than ``after``, oldest first."""
        plain = template if not template.where else _without_range(template)
        found: list[int] = []
        for shape, signature, key in self._looks(plain):
            numbers = self._candidates(plain, shape, signature, key, after + 1, template.where)
            found += islice((number for _, number in numbers if allowed is None or allowed(number)), most)
        return sorted(found)[:most]

    def lowest(self, template: Template, most: int) -> list[int]:
        """The ``most`` lowest numbers that match; with a range, of the items in it."""
        if template.where and range_of(template.where) is not None:
            return nsmallest(most, self.matches(template))
        return self.page(template, -1, most)

    def count(self, template: Template) -> int:
        """How many match; without a condition that is a sum of lengths."""
        if template.where:
            return sum(1 for _ in self.matches(template))
        total = 0
        for shape, signature, key in self._looks(template):
            bucket = shape.bucket(signature, key, self.items.__getitem__)
            total += 0 if bucket is None else 1 if isinstance(bucket, int) else len(bucket)
        return total

    def _candidates(
        self, template: Template, shape: Shape, signature: tuple[int, ...], key: _Key, since: int, where: bytes = b""
    ) -> Iterator[tuple[Any, int]]:
        """Pairs of a rank and a number, lowest first, of the matches in one shape."""
        items = self.items
        bounds = range_of(template.where) if template.where else None
        condition = template.where or where
        test = predicate_of(condition) if condition else None
        if bounds is not None:
            names = shape.names or tuple(f"f{at}" for at in range(len(shape.kinds)))
            at = names.index(bounds.name) if bounds.name in names else -1
            if at < 0 or (shape.kinds[at] == "str") != bounds.text or shape.kinds[at] not in (*NUMERIC, "str"):
                return
            ordered = shape.ordered(signature, at, key, items.__getitem__)
            if ordered is None:
                return
            for value, number in _within(ordered, bounds):
                if number >= since and (test is None or test(condition_view(items[number]))):
                    yield value, number
            return
        bucket = shape.bucket(signature, key, items.__getitem__)
        if bucket is None:
            return
        numbers = (
            ([bucket] if bucket >= since else [])
            if isinstance(bucket, int)
            else bucket.since(since)
            if since
            else bucket
        )
        for number in numbers:
            if test is None or test(condition_view(items[number])):
                yield 0, number

    def _looks(self, template: Template) -> Iterator[tuple[Shape, tuple[int, ...], _Key]]:
        """The shapes that a template can match in, with the places of its values there, and the values."""
        if template.of:
            shapes = self._by_arity.get(ARITY_ANY, ())
        elif template.arity == ARITY_ANY:
            for shape in list(self._shapes.values()):
                yield shape, (), ()
            return
        else:
            shapes = self._by_arity.get(template.arity, ())
        for shape in shapes:
            places = _places(template, shape.of, shape.names)
            if places is None:
                continue
            signature: list[int] = []
            key: list[bytes] = []
            for want, at in zip(template.fields, places, strict=True):
                kind = shape.kinds[at]
                if want.value is not None:
                    if want.value.kind != kind:
                        break
                    signature.append(at)
                    key.append(want.value.raw)
                elif want.kinds and not any(is_of(kind, one) for one in want.kinds):
                    break
            else:
                yield shape, tuple(signature), key[0] if len(key) == 1 else tuple(key)

    def validate(self) -> None:
        """For tests."""
        for shape in self._shapes.values():
            assert len(shape.numbers)
            shape.validate()
        assert sum(len(shape.numbers) for shape in self._shapes.values()) == len(self.items)


def _without_range(template: Template) -> Template:
    return Template(template.arity, template.fields, template.of, template.names)


def _places(template: Template, of: str, names: tuple[str, ...]) -> list[int] | range | None:
    """The places of a template's fields in items of a shape; None if the shape lacks one."""
    if not template.of:
        return range(template.arity)
    if not is_of(of, template.of):
        return None
    try:
        return [names.index(name) for name in template.names]
    except ValueError:
        return None


def _within(ordered: Sorted, bounds: Range) -> Iterator[tuple[Any, int]]:
    pairs = iter(ordered) if bounds.low is None else ordered.since((bounds.low, -1))
    for pair in pairs:
        if not bounds.from_low(pair[0]):
            continue
        if not bounds.to_high(pair[0]):
            return
        yield pair


def _shape_of(item: Item) -> tuple[Any, ...]:
    return (item.of, item.names, *[field.kind for field in item.fields])


T = TypeVar("T")


class Wishes(Generic[T]):
    """Templates of waiting takes, by a name that the caller chooses, each with a value of the caller."""

    def __init__(self) -> None:
        self._forms: dict[tuple[Any, ...], dict[_Key, dict[T, Template]]] = {}
        self._templates: dict[T, Template] = {}

    def __len__(self) -> int:
        return len(self._templates)

    def __contains__(self, name: T) -> bool:
        return name in self._templates

    def add(self, name: T, template: Template) -> None:
        assert name not in self._templates
        self._templates[name] = template
        self._forms.setdefault(_form(template), {}).setdefault(_values(template), {})[name] = template

    def remove(self, name: T) -> None:
        template = self._templates.pop(name, None)
        if template is None:
            return
        form, values = _form(template), _values(template)
        names = self._forms[form][values]
        del names[name]
        if not names:
            del self._forms[form][values]
            if not self._forms[form]:
                del self._forms[form]

    def of(self, item: Item) -> Iterator[T]:
        """The names whose templates an item matches, in any order."""
        for (arity, of, names, wants), by_values in self._forms.items():
            key = _key_in(item, arity, of, names, wants)
            if key is None:
                continue
            for name, template in by_values.get(key, {}).items():
                if not template.where or predicate_of(template.where)(condition_view(item)):
                    yield name


def _form(template: Template) -> tuple[Any, ...]:
    wants = tuple((want.kinds if want.value is None else want.value.kind) for want in template.fields)
    return (template.arity, template.of, template.names, wants)


def _values(template: Template) -> _Key:
    return tuple([want.value.raw for want in template.fields if want.value is not None])


def _key_in(
    item: Item, arity: int, of: str, names: tuple[str, ...], wants: tuple[str | tuple[str, ...], ...]
) -> _Key | None:
    """The values of an item at the places that a form gives; None if the form does not fit the item."""
    fields = item.fields
    if of:
        if not item.of or not is_of(item.of, of):
            return None
        try:
            fields = tuple([item.fields[item.names.index(name)] for name in names])
        except ValueError:
            return None
    elif arity == ARITY_ANY:
        return ()
    elif item.of or len(fields) != arity:
        return None
    key: list[bytes] = []
    for field, want in zip(fields, wants, strict=True):
        if isinstance(want, str):
            if field.kind != want:
                return None
            key.append(field.raw)
        elif want and not any(is_of(field.kind, kind) for kind in want):
            return None
    return tuple(key)
