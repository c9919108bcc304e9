"""Numbers for the coordinates that conditions use, and the values of a batch's events there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ...core.limits import INDEX_FIELDS_MAX
from .batch import Batch
from .conjunctions import Coordinate, Form
from .slots import Floats, Numbers

TextUse = tuple[Coordinate, str]


class Coordinates:
    """Numbers for coordinates and codes for texts, as long as they are used."""

    def __init__(self) -> None:
        self.known: list[Coordinate] = [Coordinate((), Form.PRESENCE)]
        self.codes: dict[Coordinate, dict[str, int]] = {}
        self._numbers: dict[Coordinate, int] = {}
        self.uses: list[int] = [1]
        self._text_uses: dict[TextUse, int] = {}
        self._free: list[int] = []
        self._next_code = 0

    def take(self, coordinate: Coordinate) -> int | None:
        """``None`` if there are too many already."""
        number = self._numbers.get(coordinate)
        if number is None:
            if not self._free and len(self.known) >= INDEX_FIELDS_MAX:
                return None
            number = self._free.pop() if self._free else len(self.known)
            self.known[number : number + 1] = [coordinate]
            self.uses[number : number + 1] = [0]
            self._numbers[coordinate] = number
        self.uses[number] += 1
        return number

    def code(self, coordinate: Coordinate, text: str) -> int:
        codes = self.codes.setdefault(coordinate, {})
        if text not in codes:
            codes[text] = self._next_code
            self._next_code += 1
        self._text_uses[coordinate, text] = self._text_uses.get((coordinate, text), 0) + 1
        return codes[text]

    def release(self, coordinates: Sequence[Coordinate], texts: Sequence[TextUse]) -> list[int]:
        """Give back numbers that are not used any more."""
        gone = []
        for coordinate in coordinates:
            number = self._numbers[coordinate]
            self.uses[number] -= 1
            if not self.uses[number]:
                del self._numbers[coordinate]
                self._free.append(number)
                gone.append(number)
        for coordinate, text in texts:
            self._text_uses[coordinate, text] -= 1
            if not self._text_uses[coordinate, text]:
                del self._text_uses[coordinate, text]
                del self.codes[coordinate][text]
                if not self.codes[coordinate]:
                    del self.codes[coordinate]
        return gone

    def validate(self, used: Iterable[tuple[Sequence[Coordinate], Sequence[TextUse]]]) -> None:
        uses: dict[Coordinate, int] = {}
        texts: dict[TextUse, int] = {}
        for coordinates, pairs in used:
            for coordinate in coordinates:
                uses[coordinate] = uses.get(coordinate, 0) + 1
            for pair in pairs:
                texts[pair] = texts.get(pair, 0) + 1
        assert uses == {coordinate: self.uses[number] for coordinate, number in self._numbers.items()}
        assert texts == self._text_uses
        assert all(self.known[number] == coordinate for coordinate, number in self._numbers.items())


class Values:
    """The coordinates of a batch's events, by number, made when they are asked for."""

    def __init__(self, batch: Batch, coordinates: Coordinates) -> None:
        self._batch = batch
        self._coordinates = coordinates
        self._rows: dict[int, Floats] = {0: np.zeros(len(batch.events))}

    def row(self, number: int) -> Floats:
        row = self._rows.get(number)
        if row is None:
            coordinate = self._coordinates.known[number]
            row = self._batch.coordinates(coordinate, self._coordinates.codes.get(coordinate, {}))
            self._rows[number] = row
        return row

    def of(self, which: npt.NDArray[np.int32], events: Numbers) -> Floats:
        """For each pair of a coordinate's number and an event."""
        first = int(which[0])
        if (which == first).all():
            return self.row(first)[events]
        needed = np.flatnonzero(np.bincount(which))
        local = np.zeros(int(needed[-1]) + 1, np.int64)
        local[needed] = np.arange(len(needed))
        table = np.stack([self.row(number) for number in needed.tolist()])
        return table[local[which], events]
