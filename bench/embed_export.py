"""Time and peak memory of exporting embeddings: ``python bench/embed_export.py --dir SCRATCH``.

Writes the directory of a run with ``--rows`` random embeddings of ``--dim`` floats in
``--partitions`` partitions, as training would leave it, and runs ``lsm embed export --ids`` on it
once for each of ``--formats``; everything is deleted. The peak is the kernel's high-water mark of
the process (VmHWM), read while it runs; ``import_peak_bytes`` is that of a process that only
imports what exporting needs. ``--check`` compares some rows of npy. Prints one JSON record.
"""

from __future__ import annotations

import argparse
import mmap
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from common import drop_cache, parser, publish
from lsm.core.section import dump_config
from lsm.core.units import format_bytes
from lsm.embed import open_run, run_state
from lsm.embed.config import load_embed_config
from lsm.embed.run import CONFIG_NAME
from lsm.embed.run_state import Position, RunState, TableState
from lsm.embed.table import files as partition_files
from lsm.embed.table.layout import PartitionLayout
from lsm.storage.transfers import Transfers

POLL_SECS = 0.02
IMPORTS = "import time, lsm.cli, lsm.embed.use.embeddings, lsm.embed.use.export; time.sleep(0.2)"


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--dir", type=Path, required=True, help="scratch; its run is deleted")
    arguments.add_argument("--rows", type=int, default=20_000_000)
    arguments.add_argument("--dim", type=int, default=100)
    arguments.add_argument("--partitions", type=int, default=16)
    arguments.add_argument("--formats", default="npy")
    arguments.add_argument("--check", action="store_true")
    arguments.add_argument("--timeout-secs", type=float, default=3600)
    return arguments.parse_args()


def make_run(path: Path, args: argparse.Namespace) -> None:
    """A run of the model dot, with one float of state per embedding."""
    options = ["embed.model=dot", f"embed.dim={args.dim}", "embed.optimizer=row_adagrad"]
    config = load_embed_config("base", [*options, f"run.dir={path}", f"data.path={path}"])
    starts = [p * args.rows // args.partitions for p in range(args.partitions + 1)]
    layout = PartitionLayout.of(starts, config.embed.width)
    needed, free = 2 * layout.file_bytes, shutil.disk_usage(path.parent).free
    if needed > free:
        raise OSError(f"--dir: needs {format_bytes(needed)}, and has {format_bytes(free)} free")
    path.mkdir()
    partition_files.create(path / partition_files.FILE_NAME, layout)
    memory = mmap.mmap(-1, layout.frame_bytes)
    frame = torch.frombuffer(memory, dtype=torch.float32).view(-1, layout.width)
    frame.copy_(torch.randn(frame.shape, generator=torch.Generator().manual_seed(0)))
    checksums = []
    with Transfers(path / partition_files.FILE_NAME, config.storage) as transfers:
        for partition in range(layout.partitions):
            frame[:, 0] = partition
            offset = layout.slot_offset(partition, 0)
            checksums.append(transfers.swap(frame, write_to=offset)[0])
        transfers.sync()
    (path / CONFIG_NAME).write_text(dump_config(config))
    table = TableState(
        starts=starts,
        width=layout.width,
        dim=args.dim,
        slots=[0] * layout.partitions,
        checksums=checksums,
    )
    state = RunState(settings={}, position=Position(), table=table, relations=None)
    run_state.save_state(path, state, None)


def peak_bytes(pid: int) -> int:
    """Peak of the process's resident memory; 0 once it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def run_to_end(command: list[str], timeout_secs: float) -> tuple[float, int]:
    """Seconds and peak of the command. Raises RuntimeError if it fails."""
    start, peak = time.monotonic(), 0
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, peak_bytes(process.pid))
        time.sleep(POLL_SECS)
        if time.monotonic() > start + timeout_secs:
            process.kill()
    if process.returncode != 0:
        raise RuntimeError(f"exit status {process.returncode}: {' '.join(command)}")
    return time.monotonic() - start, peak


def check(run: Path, out: Path, rows: int) -> None:
    """Some rows of npy are those of the run."""
    ids = np.random.default_rng(0).integers(rows, size=100)
    found = np.load(out / "entities.npy", mmap_mode="r")[ids]
    np.testing.assert_array_equal(found, open_run(run).entities(ids.tolist()))


def main() -> None:
    args = parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    run, out = args.dir / "run", args.dir / "exported"
    results = []
    try:
        make_run(run, args)
        for form in args.formats.split(","):
            drop_cache(run)
            command = [sys.executable, "-m", "lsm", "embed", "export", str(run), "--ids"]
            command += ["--format", form, "--out", str(out), "--no-progress"]
            seconds, peak = run_to_end(command, args.timeout_secs)
            written = sum(path.stat().st_size for path in out.iterdir())
            if args.check and form == "npy":
                check(run, out, args.rows)
            shutil.rmtree(out)
            result = {"format": form, "seconds": round(seconds, 2), "written_bytes": written}
            results.append(result | {"peak_bytes": peak})
    finally:
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(out, ignore_errors=True)
    table = {"rows": args.rows, "dim": args.dim, "table_bytes": args.rows * (args.dim + 1) * 4}
    _, imports = run_to_end([sys.executable, "-c", IMPORTS], args.timeout_secs)
    publish({"table": table, "import_peak_bytes": imports, "exports": results}, args)


if __name__ == "__main__":
    main()
