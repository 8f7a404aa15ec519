"""What ``lsm doctor`` reports: one line per part of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "no", "info"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. state: ok, no (missing; ``detail`` says what to do), or info;
    purpose: what the part is for, under which it is listed."""

    name: str
    state: State
    detail: str
    purpose: str = ""
