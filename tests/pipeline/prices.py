"""A type of events that executors import too."""

import msgspec

import pluribus


class Price(msgspec.Struct):
    symbol: str
    price: float
    amount: int | None = None
    tags: list[str] = []


pluribus.register(Price)


def plain_row(value):
    """Numbers of any kind alike."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return value
