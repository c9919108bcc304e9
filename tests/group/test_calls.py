"""What may be called: what is marked or named, and nothing else; and how a call travels."""

import pytest

import pluribus
from pluribus.core.errors import BadBody, BadInput, TooLarge
from pluribus.core.limits import CALL_ARGUMENTS_MAX
from pluribus.group.calls import arguments_of, called, interface_of, methods_of
from pluribus.wire.bodies import decode_bodies, encode_body, join_bodies


class Account:
    def __init__(self) -> None:
        self.balance = 0

    @pluribus.exposed
    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    @pluribus.exposed
    async def audit(self) -> str:
        return "fine"

    def destroy(self) -> None:
        raise AssertionError("nobody may call this")


class Careful(Account):
    def deposit(self, amount: int) -> int:
        return super().deposit(amount)


def test_only_what_is_marked_is_exposed():
    assert set(methods_of(Account())) == {"deposit", "audit"}
    assert methods_of(Account())["deposit"](5) == 5
    assert set(methods_of(Careful())) == {"audit"}, "an override is exposed when it says so"


def test_only_what_is_named_is_exposed():
    assert set(methods_of(Account(), ["destroy"])) == {"destroy"}
    with pytest.raises(BadInput, match="no method 'balance'"):
        methods_of(Account(), ["balance"])
    with pytest.raises(BadInput, match="no method 'nothing'"):
        methods_of(Account(), ["nothing"])
    with pytest.raises(BadInput, match="underscore"):
        methods_of(Account(), ["__init__"])


def test_an_object_that_exposes_nothing_is_refused():
    with pytest.raises(BadInput, match="exposes nothing"):
        methods_of(object())
    with pytest.raises(BadInput, match="exposes nothing"):
        methods_of(Account(), [])


def test_an_interface_is_what_is_marked_or_all_that_is_public():
    class Plain:
        value = 3

        def read(self) -> int: ...
        def _hidden(self) -> int: ...

    assert set(interface_of(Account)) == {"deposit", "audit"}
    assert set(interface_of(Plain)) == {"read"}
    with pytest.raises(BadInput, match="no public method"):
        interface_of(object)


def test_arguments_arrive_as_they_went():
    sent = called(1, "deposit", (1, "two", b"three", [4]), {"five": {"six": None}})
    kind, encoded = encode_body(sent)
    (received,) = decode_bodies(kind, join_bodies(kind, [encoded]), 1)
    assert received == sent
    assert arguments_of(received) == ([1, "two", b"three", [4]], {"five": {"six": None}})


def test_what_cannot_be_called_is_refused_before_it_is_sent():
    with pytest.raises(BadBody):
        called(1, "deposit", (object(),), {})
    with pytest.raises(BadInput, match="private"):
        called(1, "_hidden", (), {})
    with pytest.raises(TooLarge, match=str(CALL_ARGUMENTS_MAX)):
        called(1, "deposit", range(CALL_ARGUMENTS_MAX + 1), {})
