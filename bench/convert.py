"""Converts (or makes) a store of a given size and records memory and speed as one JSON line.

    python bench/convert.py --bytes 8GiB --dir DIR [--synth] [--check]

The source's features are a sparse file, so reading them costs no disk time, and the measurement is
of conversion and writing. Peak memory is the kernel's high-water mark (VmHWM) of a process that
does nothing else; ``beside_topology`` leaves out indptr and indices. With --synth the store comes
from ``synthesize``. All files are removed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from common import parser, publish, run_program
from lsm.core.units import format_bytes, parse_bytes

DIM = 1024
CLASSES = 16


def peak_bytes() -> int:
    """High-water mark of this process's resident memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def make_source(directory: Path, num_nodes: int, avg_degree: int) -> None:
    """A graph in the layout of ``lsm data convert npy`` with random edges and zero features."""
    directory.mkdir()
    rng = np.random.default_rng(0)
    np.save(directory / "edge_index.npy", rng.integers(num_nodes, size=(2, num_nodes * avg_degree)))
    np.save(directory / "node_label.npy", rng.integers(CLASSES, size=num_nodes))
    for k, name in enumerate(("train_idx", "val_idx", "test_idx")):
        np.save(directory / f"{name}.npy", np.arange(k, num_nodes, 3))
    header = {"descr": "<f4", "fortran_order": False, "shape": (num_nodes, DIM)}
    with open(directory / "node_feat.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + num_nodes * DIM * 4)


def measure(arguments: argparse.Namespace) -> dict:
    """Runs the conversion in this process and describes it."""
    from lsm.data.convert.npy import convert_npy
    from lsm.data.synth import synthesize

    num_nodes = arguments.bytes // (4 * DIM)
    out = arguments.dir / "store"
    before = peak_bytes()
    start = time.perf_counter()
    if arguments.synth:
        store = synthesize(
            out, nodes=num_nodes, dim=DIM, classes=CLASSES, avg_degree=arguments.avg_degree
        )
    else:
        store = convert_npy(arguments.dir / "source", out, stripes=arguments.stripes)
    seconds = time.perf_counter() - start
    files = store.meta.files
    topology = sum(file.bytes for name, file in files.items() if name.startswith("topology/"))
    total = sum(file.bytes for file in files.values())
    return {
        "benchmark": "synth" if arguments.synth else "convert npy",
        "bytes": total,
        "topology_bytes": topology,
        "num_nodes": num_nodes,
        "num_edges": store.num_edges,
        "stripes": len(store.feature_paths),
        "seconds": round(seconds, 2),
        "gb_per_s": round(total / 1e9 / seconds, 3),
        "rss_before_bytes": before,
        "peak_rss_bytes": peak_bytes(),
        "beside_topology_bytes": peak_bytes() - topology,
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--bytes", type=parse_bytes, default=parse_bytes("8GiB"))
    options.add_argument(
        "--dir", type=Path, default=None, help="where to write; default: a new one"
    )
    options.add_argument("--avg-degree", type=int, default=12)
    options.add_argument("--stripes", type=int, default=1)
    options.add_argument("--synth", action="store_true")
    options.add_argument("--check", action="store_true", help="verify the store afterwards")
    options.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments)))
        return
    with tempfile.TemporaryDirectory(dir=arguments.dir, prefix="lsm-convert-") as name:
        directory = Path(name)
        needed = int(1.2 * arguments.bytes)
        if shutil.disk_usage(directory).free < needed:
            sys.exit(f"error: {directory}: {format_bytes(needed)} needed")
        if not arguments.synth:
            make_source(directory / "source", arguments.bytes // (4 * DIM), arguments.avg_degree)
        # A separate process, whose memory is that of the conversion alone.
        given = [option for option in sys.argv[1:] if option != "--check"]
        command = [sys.executable, __file__, *given, "--dir", directory, "--measure"]
        measured = run_program(command, timeout=None)
        if arguments.check:
            from lsm.data.verify import verify_store

            problems = verify_store(directory / "store")
            if problems:
                sys.exit("\n".join(problems))
        publish(measured, arguments, "measure")


if __name__ == "__main__":
    main()
