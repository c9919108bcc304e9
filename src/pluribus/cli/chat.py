"""``pluribus chat``: threaded talk in a browser, or in a terminal, where messages are answered by short numbers."""

import asyncio
import getpass
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import msgspec
import typer

from pluribus.cli.conversations import plain
from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput, PluribusError

HELP = """\
text            say something
/re N text      answer message N
/tree           show the conversation
/who            show who is in it; (away) has gone
/rooms          show all conversations
/join NAME      go to another conversation, or begin it
/refuse NAME    do not hear of it again
/leave          leave this conversation for good
/quit           go away; come back with the same --name"""


def command(
    room: Annotated[str, typer.Argument(help="The conversation.")] = "lounge",
    name: Annotated[str | None, typer.Option(help="Who you are; your login by default.")] = None,
    url: Annotated[str | None, typer.Option(help="The bus; $PLURIBUS_URL or multicast on loopback by default.")] = None,
    stack: Annotated[str, typer.Option(help="adhoc or views, as the others have it.")] = "adhoc",
    store: Annotated[str | None, typer.Option(help="A file that keeps what was said.")] = None,
    tui: Annotated[bool, typer.Option("--tui", help="In this terminal.")] = False,
    port: Annotated[
        int | None, typer.Option(help="The page's port on 127.0.0.1; a free one by default.", min=1, max=65_535)
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    json: JsonFlag = False,
) -> None:
    """Talk in threads, without a server, on a page in the browser or with --tui in this terminal. --json prints the
    page's address, or each message and note, as a document."""
    person = name or getpass.getuser()
    if tui:
        from pluribus.runtime.loop.running import run

        run(_chat(room, person, url, stack, store, json=json))
        return
    from pluribus.console.chat.server import HOST, free_port, serve

    found = free_port(port)
    address = f"http://{HOST}:{found}"
    if json:
        print_json({"address": address, "name": person})
    else:
        typer.echo(f"{address} is the page of {plain(person)}; Ctrl-C goes away")
    serve(room, person, url, stack, store, found, show=browser and not json)


async def _chat(room: str, name: str, url: str | None, stack: str, store: str | None, *, json: bool) -> None:
    from pluribus.runtime.bus import connect

    async with connect(url, name=name, stack=stack) as bus:
        lobby = await bus.conversations(store=store)
        await Terminal(lobby, typer.echo, json=json).talk(room, typed_lines())


async def typed_lines() -> AsyncIterator[str]:
    """The lines that a person types, until the end of standard input."""
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (sys.stdin.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):  # a file never keeps anybody waiting
        for line in sys.stdin:
            yield line.rstrip("\r\n")
        return
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while data := await reader.readline():
        yield data.decode(errors="replace").rstrip("\r\n")


class Terminal:
    """One person at a terminal, in one conversation at a time. ``show`` prints a line."""

    def __init__(self, lobby: Any, show: Callable[[str], None], *, json: bool = False) -> None:
        self._json = json
        self._lobby = lobby
        self._show = show
        self._room: Any = None
        self._numbers: dict[tuple[int, int], int] = {}
        self._messages: list[tuple[int, int]] = []
        self._end: Callable[[], None] = lambda: None

    async def talk(self, room: str, lines: AsyncIterator[str]) -> None:
        stop = self._lobby.on_invitations(self._invited)
        await self._go_to(room)
        try:
            async for line in lines:
                if line.strip() == "/quit":
                    return
                try:
                    await self._do(line)
                except PluribusError as error:
                    self._tell(f"! {error}")
        finally:
            stop()

    async def _go_to(self, name: str) -> None:
        room = await self._lobby.room(name)  # if that cannot be, one stays where one is, and hears on
        self._end()
        self._room = room
        self._numbers.clear()
        self._messages.clear()
        self._tell(f"-- {plain(name)}: {len(self._room.history())} messages; /help tells what you can do")
        self._show_tree()
        self._end = self._room.on_messages(self._given)

    async def _do(self, line: str) -> None:
        word, _, rest = line.strip().partition(" ")
        match word:
            case "":
                return
            case "/help":
                self._tell(HELP)
            case "/re":
                number, _, text = rest.strip().partition(" ")
                if not number.isdecimal() or int(number) >= len(self._messages) or not text:
                    raise BadInput(f"/re {rest} answers nothing: write /re N text, with the number of a message")
                await self._room.send(text, parent=self._messages[int(number)])
            case "/tree":
                self._show_tree()
            case "/who":
                who = (name if here else f"{name} (away)" for name, here in self._room.members.items())
                self._tell("-- " + plain(", ".join(who)))
            case "/rooms":
                for info in self._lobby:
                    self._tell(f"-- {plain(info.gid)}: {plain(info.description)} ({plain(', '.join(info.members))})")
            case "/join":
                await self._go_to(rest.strip())
            case "/refuse":
                self._lobby.refuse(rest.strip())
            case "/leave":
                await self._room.leave()
                self._tell("-- you left; /join NAME goes to another one")
            case _ if word.startswith("/"):
                raise BadInput(f"{word} is no command: /help lists them; begin with a blank to say it")
            case _:
                await self._room.send(line)

    def _invited(self, groups: list[Any]) -> None:
        for info in groups:
            self._tell(
                f"-- there is {plain(info.gid)}: {plain(info.description)}; /join {plain(info.gid)} or /refuse it"
            )

    def _tell(self, note: str) -> None:
        """Print a note, which is no message; with --json as a document of its own."""
        self._show(msgspec.json.encode({"note": note}).decode() if self._json else note)

    def _given(self, delivered: list[Any]) -> None:
        for found in delivered:
            self._show(self._line(found.entry))

    def _show_tree(self) -> None:
        for depth, entry in self._room.tree().walk():
            self._show("  " * (0 if self._json else min(depth, 20)) + self._line(entry, tree=True))

    def _line(self, entry: Any, *, tree: bool = False) -> str:
        number = self._number(entry.id)
        if self._json:
            fields = {"number": number, "id": entry.id, "parent": entry.parent, "by": entry.by, "body": entry.body}
            return msgspec.json.encode({"room": self._room.name, **fields, "at": entry.at}).decode()
        to = "" if tree or entry.parent is None else f" to {self._number(entry.parent)}"
        return f"[{number}{to}] {plain(entry.by)}: {plain(entry.body or '(not kept)')}"

    def _number(self, message: tuple[int, int]) -> int:
        if message not in self._numbers:
            self._numbers[message] = len(self._messages)
            self._messages.append(message)
        return self._numbers[message]
