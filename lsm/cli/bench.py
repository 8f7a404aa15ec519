"""``lsm bench``: measurements of this machine."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lsm.cli.arguments import integers
from lsm.core.arguments import size as as_bytes
from lsm.core.units import format_bytes

if TYPE_CHECKING:
    from lsm.storage.measure import Point

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure this machine.")


_PROFILE_SECONDS, _SWEEP_SECONDS = 0.3, 2.0


@app.callback()
def _group() -> None:
    """Makes ``storage`` a sub-command although it is the only one."""


@app.command()
def storage(
    store: Annotated[
        Path | None,
        typer.Argument(help="A store: reads its feature files. Without: --path.", metavar="STORE"),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Measure the disk profile of training (lsm train, storage.profile), and write "
            "it to STORE/profile.json, or to --json if given.",
        ),
    ] = False,
    path: Annotated[
        Path, typer.Option(help="A file to read, or a directory for a temporary test file.")
    ] = Path("."),
    size: Annotated[str, typer.Option(help="Size of the temporary test file.")] = "2GiB",
    engine: Annotated[str, typer.Option(help="io_uring, nvme, posix, mmap, memory.")] = "io_uring",
    blocks: Annotated[str, typer.Option(help="Block sizes, comma-separated.")] = "4KiB,16KiB,64KiB",
    depths: Annotated[str, typer.Option(help="Queue depths, comma-separated.")] = "1,8,32,128",
    seconds: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds per measurement [default: {_SWEEP_SECONDS:g}; with --profile "
            f"{_PROFILE_SECONDS:g}]"
        ),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Measurements per setting; medians are shown.")
    ] = 3,
    fio: Annotated[bool, typer.Option("--fio", help="The same by fio, side by side.")] = False,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Also write a record to this file.")
    ] = None,
) -> None:
    """Sweep random reads over block size and queue depth: IOPS, GB/s, p50 and p99 latency.

    With --profile: latency, IOPS by depth and cost by size of the disk, in a form that training
    reads. --blocks, --depths and --fio have no effect then.
    """
    if seconds is not None and not 0 < seconds < inf:
        raise ValueError(f"--seconds: expected more than 0, got {seconds:g}")
    file_bytes = as_bytes("--size", size)
    if profile:
        secs = seconds or _PROFILE_SECONDS
        _write_profile(store, path, file_bytes, engine, secs, repeats, json_path)
        return
    from rich.console import Console

    from lsm.core import record
    from lsm.core.atomic_file import writing
    from lsm.storage.measure import as_record, scratch_file, sweep

    if store is not None:
        raise ValueError("STORE: goes with --profile; --path takes a file or a directory")

    block_sizes = [as_bytes("--blocks", text) for text in blocks.split(",")]
    queue_depths = integers("--depths", depths)
    for block_bytes in block_sizes:
        if block_bytes < 512 or block_bytes % 512:
            raise ValueError(f"--blocks: expected multiples of 512 bytes, got {block_bytes}")
    if min(queue_depths) < 1:
        raise ValueError(f"--depths: expected at least 1, got {min(queue_depths)}")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or directory")
    if path.is_file():
        file_bytes = path.stat().st_size
    if file_bytes < max(block_sizes):
        raise ValueError(
            f"--blocks: expected at most the {file_bytes} bytes of the file, got "
            f"{max(block_sizes)}; --size makes a larger one"
        )
    console = Console()
    console.print(f"{'block':>8} {'depth':>6} {'reader':>9} {'IOPS':>10} {'GB/s':>7} ", end="")
    console.print(f"{'p50 us':>9} {'p99 us':>9}")

    def show(point: Point) -> None:
        console.print(
            f"{point.block_bytes:>8} {point.queue_depth:>6} {point.reader:>9} {point.iops:>10,.0f} "
            f"{point.gb_per_s:>7.3f} {point.p50_us:>9.1f} {point.p99_us:>9.1f}",
            highlight=False,
        )

    with scratch_file(path, file_bytes) as file:
        points = sweep(
            file,
            engine=engine,
            block_sizes=block_sizes,
            queue_depths=queue_depths,
            seconds=seconds or _SWEEP_SECONDS,
            repeats=repeats,
            with_fio=fio,
            report=show,
        )
    if json_path is not None:
        with writing(json_path) as file:
            file.write_text(json.dumps(record.make({"points": as_record(points)}), indent=1))


def _require_writable(file: Path) -> None:
    """Raises OSError, before minutes of measuring, unless ``file`` can be written."""
    from tempfile import TemporaryFile

    try:
        TemporaryFile(dir=file.absolute().parent).close()
    except OSError as error:
        raise OSError(
            error.errno,
            f"cannot be written: {error.strerror}; choose another place with --json FILE, which "
            "storage.profile then names",
            str(file),
        ) from None


def _write_profile(
    store: Path | None,
    path: Path,
    file_bytes: int,
    engine: str,
    seconds: float,
    repeats: int,
    json_path: Path | None,
) -> None:
    """Measures the feature files of ``store``, or ``path``, and prints the place of the profile."""
    from contextlib import ExitStack

    from lsm.storage.disk_profile import PROFILE, save_profile
    from lsm.storage.measure import Source, scratch_file
    from lsm.storage.measure_profile import enough_bytes, feature_source, measure_profile

    if json_path is not None:
        out = json_path
    elif store is not None:
        out = store / PROFILE
    else:
        raise ValueError(
            "--profile: expected a STORE to write profile.json to, or --json FILE; storage.profile "
            "then names that file"
        )
    _require_writable(out)
    with ExitStack() as stack:
        if store is not None:
            source = feature_source(store)
        else:
            if not path.exists():
                raise FileNotFoundError(f"{path}: no such file or directory")
            source = Source.of(stack.enter_context(scratch_file(path, file_bytes)))
        profile = measure_profile(source, engine, seconds, repeats, report=typer.echo)
    save_profile(profile, out)
    model, cost = profile.access_model(), profile.cost
    typer.echo(
        f"latency {profile.latency_secs * 1e6:.0f} us, request {model.overhead_secs * 1e6:.0f} us"
    )
    typer.echo(
        f"peak {profile.peak_iops:,.0f} reads/s; 95% with {model.accesses(0.95):.0f} overlapping"
    )
    typer.echo(
        f"a read costs {cost.secs_per_read * 1e6:.2f} us + {cost.secs_per_byte * 1e9:.3f} ns/byte; "
        f"gaps up to {cost.secs_per_read / cost.secs_per_byte / 1024:.1f} KiB are cheaper read"
    )
    typer.echo(f"profile: {out}")
    enough = enough_bytes(profile, seconds)
    if profile.file_bytes < enough:
        wanted = format_bytes(enough).replace(" ", "")
        typer.echo(
            f"warning: {format_bytes(profile.file_bytes)} are too few for figures to go by: "
            "measurements read the same blocks again, and caches of the drive answer; expected "
            f"{wanted} or more. Measure a file on that disk instead: --profile --path DIRECTORY "
            f"--size {wanted} --json FILE; storage.profile then names FILE",
            err=True,
        )
