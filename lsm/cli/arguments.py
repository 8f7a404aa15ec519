"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Override config keys.")
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the whole configuration and stop.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Print every key with its meaning and default.")
]
