"""How verbs speak: text for people, one JSON document for programs."""

import json
from typing import Annotated, Any

import typer

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
"""Every verb has this parameter: ``def command(json: JsonFlag = False) -> None``."""


def print_json(document: Any) -> None:
    """Print ``document``, built of plain dicts, lists, strings and numbers, as one line of JSON."""
    try:
        line = json.dumps(document, ensure_ascii=False, allow_nan=False)
    except ValueError:  # JSON has neither NaN nor infinity: they are null
        import msgspec

        line = msgspec.json.encode(document).decode()
    typer.echo(line)
