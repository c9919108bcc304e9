"""Rows of the keepers' log: what is put into one comes out of it, however it was put in."""

import msgspec
import pytest

from pluribus.group.keepers.rows import COMMANDS, HEAD_BYTES, commands_of, encode_commands, head_of


@pytest.mark.parametrize("sizes", [[0], [255], [256], [11_000], [65_535], [65_536], [300, 300], []])
def test_commands_come_back_and_are_plain_msgpack(sizes: list[int]):
    commands = [bytes([size % 251]) * size for size in sizes]
    row = encode_commands(7, 40, commands)
    assert commands_of(row) == commands
    assert row[HEAD_BYTES:] == msgspec.msgpack.encode(commands)
    head = head_of(row)
    assert (head.kind, head.epoch, head.first, head.next) == (COMMANDS, 7, 40, 40 + len(sizes))
