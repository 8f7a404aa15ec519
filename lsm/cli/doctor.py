"""``lsm doctor``: what this machine can do, and why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

_COLOURS = {"ok": "green", "no": "yellow", "info": "cyan"}


def doctor(
    path: Annotated[
        Path, typer.Argument(help="Store, file or folder whose file system is probed.")
    ] = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show what this machine offers, and which storage engine `auto` picks."""
    from lsm.doctor import as_records, examine, verdict

    findings = examine(path)
    if as_json:
        typer.echo(json.dumps(as_records(findings), indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for title in ("what", "", "detail"):
        table.add_column(title, overflow="fold")
    for finding in findings:
        colour = _COLOURS[finding.state]
        table.add_row(finding.name, f"[{colour}]{finding.state}[/]", escape(finding.detail))
    typer.echo(verdict(findings))
    Console(highlight=False).print(table)
