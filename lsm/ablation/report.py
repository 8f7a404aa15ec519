"""Writes the records of a study as JSON, CSV, and tables for a terminal and for Markdown."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table

from lsm.ablation.runs import ignored
from lsm.core.atomic_file import writing

PARAMETERS = (
    "policy",
    "size",
    "lines",
    "ways",
    "window",
    "update_period",
    "near_fraction",
    "victim",
    "victim_rows",
    "mode",
    "hash",
    "constant_fraction",
    "constant_rows",
    "constant_score",
    "merge_iterations",
)
_RESULTS = ("requests", "hits", "victim_hits", "constant_hits", "misses")
_RATIOS = ("hit_ratio", "hit_ratio_2nd")
_READS = ("reads", "bytes_read", "read_amplification", "read_secs", "rows_per_s")


def write_json(path: Path, records: Sequence[dict]) -> None:
    """A JSON array, one record per line. Raises OSError, which names the file."""
    lines = ",\n".join(json.dumps(record) for record in records)
    write_text(path, f"[\n{lines}\n]\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file of results as a whole. Raises OSError, which names the file."""
    with writing(path) as temporary:
        temporary.write_text(text)


def write_csv(path: Path, records: Sequence[dict]) -> None:
    """One row per record, the keys as header. Raises OSError, which names the file."""
    with writing(path) as temporary, open(temporary, "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(records[0]))
        writer.writeheader()
        writer.writerows(records)


def markdown(records: Sequence[dict]) -> str:
    """A Markdown table of the parameters that vary and of the results.

    "-" stands for a parameter that the record's policy ignores.
    """
    columns = _columns(records)
    return markdown_table(columns, [_row(record, columns) for record in records])


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of ``rows``."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table(records: Sequence[dict]) -> Table:
    """The same for a terminal."""
    columns = _columns(records)
    out = Table()
    for column in columns:
        out.add_column(column, justify="left" if column in ("policy", "victim") else "right")
    for record in records:
        out.add_row(*_row(record, columns))
    return out


def requests_note(records: Sequence[dict]) -> str:
    """The reason why records have fewer requests than their trace; "" if none has."""
    fewer = [each for each in records if each["requests"] < each["trace_requests"]]
    if not fewer:
        return ""
    first = fewer[0]
    return (
        f"{first['trace_requests']:,} requests in the trace of {first['num_ranks']} ranks, "
        f"{first['requests']:,} to the cache that they share: a row that several ranks request at "
        "an iteration counts once"
    )


def varying(records: Sequence[dict], names: Iterable[str] = PARAMETERS) -> list[str]:
    """The ``names`` whose values differ between records."""
    present = [name for name in names if name in records[0]]
    return [name for name in present if len({record[name] for record in records}) > 1]


def _columns(records: Sequence[dict]) -> list[str]:
    parameters = dict.fromkeys(["policy", "lines", *varying(records)])
    ordered = [name for name in PARAMETERS if name in parameters]
    always = ("requests", "hits", "misses")
    results = [
        name for name in _RESULTS if name in always or any(record[name] for record in records)
    ]
    measured = _READS if "read_secs" in records[0] else ()
    return [*ordered, *results, *_RATIOS, *measured]


def _row(record: dict, columns: Sequence[str]) -> list[str]:
    unused = ignored(record)
    return ["-" if name in unused else _text(name, record[name]) for name in columns]


def _text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if name in _RATIOS:
        return f"{value:.4f}"
    if name in ("read_amplification", "read_secs"):
        return f"{value:.2f}"
    if name == "rows_per_s":
        return f"{value:,.0f}"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and name in (*_RESULTS, *_READS) else str(value)
