"""``pluribus access``: users, rules and tokens of a bus."""

import re
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from pluribus.cli.output import JsonFlag, print_json
from pluribus.core.errors import BadInput

T = TypeVar("T")
UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

command = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Access lists: who may do what from client://; see docs/access.md.",
)
What = Annotated[list[str], typer.Argument(help="user NAME, rule WHO STYLE:PATTERN VERB, or (remove) token ID.")]
Url = Annotated[str | None, typer.Option(help="The bus, or client://…; by default $PLURIBUS_URL, then multicast.")]


@command.callback()
def _root() -> None:
    pass


@command.command()
def add(
    what: What,
    role: Annotated[list[str] | None, typer.Option(help="A role of the user; several times for several.")] = None,
    password_stdin: Annotated[bool, typer.Option(help="Read the user's password from standard input.")] = False,
    ask: Annotated[bool, typer.Option(help="Ask for the user's password on the terminal.")] = False,
    certificate: Annotated[str, typer.Option(help="The common name of the certificate that proves the user.")] = "",
    url: Url = None,
    json: JsonFlag = False,
) -> None:
    """Add a user or a rule: `add user ann --role clerk --ask`, `add rule role:clerk queue:orders send`."""
    kind, *rest = what
    if kind == "user" and len(rest) == 1:
        password: str | None = sys.stdin.readline().rstrip("\n") if password_stdin else None
        if ask:
            password = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        roles = role or []
        _on_bus(url, lambda bus: bus.access.add_user(rest[0], password=password, roles=roles, certificate=certificate))
    elif kind == "rule" and len(rest) == 3:
        _on_bus(url, lambda bus: bus.access.add_rule(*rest))
    else:
        raise BadInput("add what? `add user NAME`, or `add rule WHO STYLE:PATTERN VERB`")
    _tell(json, "added", what)


@command.command()
def remove(what: What, url: Url = None, json: JsonFlag = False) -> None:
    """Remove a user, a rule or a token. When the command returns, it is refused everywhere."""
    kind, *rest = what
    if kind == "user" and len(rest) == 1:
        _on_bus(url, lambda bus: bus.access.remove_user(rest[0]))
    elif kind == "rule" and len(rest) == 3:
        _on_bus(url, lambda bus: bus.access.remove_rule(*rest))
    elif kind == "token" and len(rest) == 1:
        _on_bus(url, lambda bus: bus.access.remove_token(rest[0]))
    else:
        raise BadInput("remove what? `remove user NAME`, `remove rule WHO STYLE:PATTERN VERB` or `remove token ID`")
    _tell(json, "removed", [kind] if kind == "token" else what)  # the token may have been given whole


@command.command("list")
def list_(url: Url = None, json: JsonFlag = False) -> None:
    """Show users, rules and tokens, without their secrets."""
    found = _on_bus(url, lambda bus: bus.access.list())
    users = [
        {"user": one.name, "roles": one.roles, "password": bool(one.password), "certificate": one.certificate}
        for one in found.users
    ]
    rules = [{"who": one.who, "destination": f"{one.style}:{one.pattern}", "verb": one.verb} for one in found.rules]
    tokens = [{"token": one.id, "user": one.user, "until": one.until_us / 1e6} for one in found.tokens]
    if json:
        print_json({"version": found.version, "users": users, "rules": rules, "tokens": tokens})
        return
    if not users and not rules:
        typer.echo("no access list: everybody who reaches a door may do everything")
    for user in found.users:
        proof = [
            *(["password"] if user.password else []),
            *([f"certificate {user.certificate}"] * bool(user.certificate)),
        ]
        typer.echo(f"user   {user.name}  roles {', '.join(user.roles) or '-'}  {', '.join(proof) or 'tokens only'}")
    for rule in found.rules:
        typer.echo(f"rule   {rule.who}  {rule.style}:{rule.pattern}  {rule.verb}")
    for token in found.tokens:
        until = datetime.fromtimestamp(token.until_us / 1e6, UTC).isoformat(timespec="seconds")
        typer.echo(f"token  {token.id}  {token.user}  until {until}")


@command.command()
def check(who: str, destination: str, verb: str, url: Url = None, json: JsonFlag = False) -> None:
    """Check whether a user may do something: `check ann queue:orders send`. Exits with 1 if not."""
    allowed = _on_bus(url, lambda bus: bus.access.check(who, destination, verb))
    if json:
        print_json({"who": who, "destination": destination, "verb": verb, "allowed": allowed})
    else:
        typer.echo("yes" if allowed else "no")
    if not allowed:
        raise typer.Exit(1)


@command.command()
def token(
    user: str,
    time: Annotated[str, typer.Option("--for", help="How long it proves the user: 90s, 30m, 8h, 7d.")] = "8h",
    url: Url = None,
    json: JsonFlag = False,
) -> None:
    """Print a token that proves a user for a while. It is printed once, and nobody can look it up."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", time)
    if found is None:
        raise BadInput(f"--for {time}: write a number and s, m, h or d, for instance 8h")
    seconds = float(found[1]) * UNITS[found[2]]
    made = _on_bus(url, lambda bus: bus.access.token(user, seconds=seconds))
    if json:
        print_json({"user": user, "token": made, "seconds": seconds})
    else:
        typer.echo(made)


def _tell(json: bool, done: str, what: list[str]) -> None:
    if json:
        print_json({"done": done, "what": what})
    else:
        typer.echo(f"{done} {' '.join(what)}")


def _on_bus(url: str | None, ask: Callable[[Any], Awaitable[T]]) -> T:
    from pluribus.runtime.bus import connect
    from pluribus.runtime.loop.running import run

    async def asked() -> T:
        async with connect(url, name="access") as bus:
            return await ask(bus)

    return run(asked())
