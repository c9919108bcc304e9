"""A style of one's own in fifty lines: a to-do list that many programs share. docs/design/styles.md walks through it.

python examples/todo_style.py add "buy milk"; python examples/todo_style.py ls; python examples/todo_style.py done ID
"""

import asyncio
import os
import sys
from collections.abc import Iterable

import msgspec

import pluribus
from pluribus.styles import Ground, Machine, Machines, Style, machine_of_style

ITEMS_MAX = 10_000


class Add(msgspec.Struct, array_like=True, frozen=True, tag=1):
    id: int
    text: str


class Done(msgspec.Struct, array_like=True, frozen=True, tag=2):
    id: int


@machine_of_style
class TodoList(Machine):
    """The same items at every copy. An item has an identity, so a command that comes twice changes nothing."""

    kind = "todo"

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self.items: dict[int, str] = {}

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self.items = {}
        for _, data in parts:
            self.items = msgspec.msgpack.decode(data, type=dict[int, str])

    def apply(self, row: int, place: int, command: bytes) -> bool:
        try:
            asked = msgspec.msgpack.decode(command, type=Add | Done)
        except msgspec.MsgspecError:  # from outside: a machine never raises
            return False
        self.parts.touch("items")
        if isinstance(asked, Done):
            return self.items.pop(asked.id, None) is not None
        if len(self.items) < ITEMS_MAX:
            self.items.setdefault(asked.id, asked.text)
        return asked.id in self.items

    def query(self, question: bytes) -> bytes:
        return msgspec.msgpack.encode(self.items)

    def part_names(self) -> list[str]:
        return ["items"]

    def encode_part(self, name: str) -> bytes:
        return msgspec.msgpack.encode(dict(sorted(self.items.items())))


class Todo(Style):
    """The face: ``todo = await bus.style(Todo).open()``. It is the same on a member and on a client."""

    async def open(self, durable: bool = False) -> "Todo":
        self._line = await self.bus.style(Machines).open("todo", TodoList, bool, durable=durable)
        return self

    async def add(self, id: int, text: str) -> bool:
        return await self._line.call(msgspec.msgpack.encode(Add(id, text)))

    async def done(self, id: int) -> bool:
        return await self._line.call(msgspec.msgpack.encode(Done(id)))

    async def items(self) -> dict[int, str]:
        return msgspec.msgpack.decode(await self._line.inspect(b"items"), type=dict[int, str])


Todo.on_clients = f"{__name__}:Todo"


async def main(verb: str = "ls", *words: str) -> None:
    async with pluribus.connect(store=os.environ.get("TODO_STORE", "todo.sqlite3")) as bus:
        todo = await bus.style(Todo).open(durable=True)
        items = await todo.items()
        if verb == "add":
            await todo.add(max(items, default=0) + 1, " ".join(words))
        elif verb == "done":
            await todo.done(int(words[0]))
        for id, text in (await todo.items()).items():
            print(id, text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
