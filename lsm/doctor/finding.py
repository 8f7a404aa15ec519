"""Findings of ``lsm doctor``: one line per part of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "no", "info"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. state: ok, no (missing; ``detail`` has the remedy), or info. purpose:
    the use of the part, under which it is listed."""

    name: str
    state: State
    detail: str
    purpose: str = ""
