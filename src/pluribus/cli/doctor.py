"""``pluribus doctor``: what works on this machine, and how to get the rest."""

from dataclasses import asdict

import typer

from pluribus.cli import probes
from pluribus.cli.output import JsonFlag, print_json


def command(json: JsonFlag = False) -> None:
    """Tell what works on this machine, and how to get the rest.

    Exits with 0 unless something is missing that nothing works without.
    """
    findings = probes.examine()
    usable = all(finding.ok for finding in findings if finding.essential)
    if json:
        print_json({"usable": usable, "findings": [asdict(finding) for finding in findings]})
    else:
        _print_table(findings, usable)
    if not usable:
        raise typer.Exit(1)


def _print_table(findings: list[probes.Finding], usable: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(show_edge=False, pad_edge=False)
    table.add_column("what")
    table.add_column("state")
    table.add_column("detail, and what to do", overflow="fold")
    for finding in findings:
        state = Text("ok", "green") if finding.ok else Text("missing", "bold red" if finding.essential else "yellow")
        # Text, not markup: a path may hold brackets.
        table.add_row(Text(finding.name), state, Text("\n".join(filter(None, (finding.detail, finding.remedy)))))
    console = Console()
    console.print(table)
    missing = sum(not finding.ok for finding in findings)
    if not usable:
        console.print("\nPluribus cannot run here until what is red above is mended.")
    elif missing:
        noun = "thing is" if missing == 1 else "things are"
        console.print(f"\nPluribus runs here; {missing} optional {noun} missing, and what needs it says so.")
    else:
        console.print("\nEverything works here.")
