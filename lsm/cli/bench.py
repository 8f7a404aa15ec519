"""``lsm bench``: measurements of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Measure what this machine can do.")


@app.callback()
def _group() -> None:
    """Makes ``storage`` a sub-command although it is the only one."""


@app.command()
def storage(
    path: Annotated[
        Path, typer.Option(help="A file to read, or a directory for a temporary test file.")
    ] = Path("."),
    size: Annotated[str, typer.Option(help="Size of the temporary test file.")] = "2GiB",
    engine: Annotated[str, typer.Option(help="io_uring, posix, mmap or memory.")] = "io_uring",
    blocks: Annotated[str, typer.Option(help="Block sizes, comma-separated.")] = "4KiB,16KiB,64KiB",
    depths: Annotated[str, typer.Option(help="Queue depths, comma-separated.")] = "1,8,32,128",
    seconds: Annotated[float, typer.Option(help="Seconds per measurement.")] = 2.0,
    repeats: Annotated[int, typer.Option(help="Measurements per setting; medians are shown.")] = 3,
    fio: Annotated[bool, typer.Option("--fio", help="The same by fio, side by side.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Also write a record to this file.")
    ] = None,
) -> None:
    """Sweep random reads over block size and queue depth: IOPS, GB/s, p50 and p99 latency."""
    from rich.console import Console

    from lsm.bench import record
    from lsm.bench.storage import as_record, scratch_file, sweep
    from lsm.units import parse_bytes

    block_sizes = [parse_bytes(text) for text in blocks.split(",")]
    queue_depths = [int(text) for text in depths.split(",")]
    for block_bytes in block_sizes:
        if block_bytes < 512 or block_bytes % 512:
            raise ValueError(f"--blocks: expected multiples of 512 bytes, got {block_bytes}")
    if min(queue_depths) < 1:
        raise ValueError(f"--depths: expected at least 1, got {min(queue_depths)}")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or directory")
    console = Console()
    console.print(f"{'block':>8} {'depth':>6} {'reader':>9} {'IOPS':>10} {'GB/s':>7} ", end="")
    console.print(f"{'p50 us':>9} {'p99 us':>9}")

    def show(point) -> None:
        console.print(
            f"{point.block_bytes:>8} {point.queue_depth:>6} {point.reader:>9} {point.iops:>10,.0f} "
            f"{point.gb_per_s:>7.3f} {point.p50_us:>9.1f} {point.p99_us:>9.1f}",
            highlight=False,
        )

    with scratch_file(path, parse_bytes(size)) as file:
        points = sweep(
            file,
            engine=engine,
            block_sizes=block_sizes,
            queue_depths=queue_depths,
            seconds=seconds,
            repeats=repeats,
            with_fio=fio,
            report=show,
        )
    if json_path is not None:
        json_path.write_text(json.dumps(record.make({"points": as_record(points)}), indent=1))
