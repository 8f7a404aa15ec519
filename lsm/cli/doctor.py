"""``lsm doctor``: shows the abilities of this machine, and reasons against the others."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lsm.doctor.finding import Finding

_COLOURS = {"ok": "green", "no": "yellow", "info": "cyan"}


def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="STORE", help="Store to check, and its disk; default: no store."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show whether training runs here and the parts that this machine has; exit 1 if it does not
    run, or if STORE is no store."""
    from lsm.doctor.machine import examine, verdict

    findings = examine(path)
    answer = verdict(findings)
    if as_json:
        records = [asdict(finding) for finding in findings]
        report = {"trains": answer.trains, "verdict": answer.line, "findings": records}
        typer.echo(json.dumps(report, indent=2))
    else:
        from rich.console import Console

        typer.echo(answer.line)
        Console(highlight=False).print(_as_table(findings))
    if not answer.trains:
        raise typer.Exit(1)


def _as_table(findings: list[Finding]) -> Table:
    """The findings, grouped by purpose."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for purpose, part in groupby(findings, key=lambda finding: finding.purpose):
        table.add_row(f"[bold]{purpose}[/]")
        for finding in part:
            state = f"[{_COLOURS[finding.state]}]{finding.state}[/]"
            table.add_row(f"  {finding.name}", state, escape(finding.detail))
    return table
