"""Filtered MRR of `lsm embed train base` and of a sweep: ``python bench/embed_defaults.py --help``.

``python bench/embed_defaults.py --stores SCRATCH/stores --dir SCRATCH/runs --sweep SWEEP``

SWEEP has a line for each run: a store's name, then ``key=value`` that differ from base. Runs whose
directory under ``--dir`` has a result are not made again, so the command goes on where it stopped.
The record has every finished run under ``--dir``, also one that an earlier sweep made: the keys in
which it differs from the base of this commit, the MRR of its validations by epoch, and the test MRR
with the number of edges ranked. Compare runs of one store by validations of one epoch and as many
edges: where the machine had no time for all epochs, ``epochs`` says how many there were.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import yaml

from common import parser, publish, run_program
from lsm.embed.config import EmbedConfig

KEPT = ("test_mrr", "test_hits_at_10", "valid_mrr", "epochs", "stopped_early", "partitions")
KEPT += ("bytes_read", "bytes_written", "seconds", "protocol")
SECTIONS = ("embed", "train", "eval")


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--stores", type=Path, required=True, help="directory of stores")
    arguments.add_argument("--dir", type=Path, required=True, help="of the runs, which are kept")
    arguments.add_argument("--sweep", type=Path, help="file with a line for each run")
    arguments.add_argument(
        "--trained-at", default="", help="commit of earlier runs, for the record"
    )
    arguments.add_argument("--set", action="append", default=[], help="more keys of all runs")
    arguments.add_argument("--timeout-secs", type=float, default=36000, help="of one run")
    return arguments.parse_args()


def train(line: str, args: argparse.Namespace) -> None:
    """Makes the run of a line of the sweep, unless it has ended."""
    name, *keys = shlex.split(line)
    keys += args.set
    digest = hashlib.sha256(" ".join(keys).encode()).hexdigest()[:8]
    run_dir = args.dir / f"{name}-{digest}"
    if (run_dir / "result.json").exists():
        return
    command = [sys.executable, "-m", "lsm", "embed", "train", "embed/base", *keys]
    command += [f"data.path={args.stores / name}", f"run.dir={run_dir}"]
    command += ["metrics.loggers=[]", "metrics.progress=off"]
    print("+", *command[3:], file=sys.stderr, flush=True)
    run_program(command, timeout=args.timeout_secs)
    (run_dir / "partitions.bin").unlink(missing_ok=True)


def describe(run_dir: Path) -> dict[str, Any]:
    """A finished run, in numbers."""
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    base = EmbedConfig().model_dump(mode="json")
    differs = {
        f"{section}.{key}": config[section].get(key)
        for section in SECTIONS
        for key, value in base[section].items()
        if config[section].get(key) != value
    }
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    validations = {
        line["epoch"]: {"mrr": line["valid_mrr"], "edges": line["valid_num_edges"]}
        for line in lines
        if line.get("valid_mrr") is not None
    }
    result = json.loads((run_dir / "result.json").read_text())
    return {
        "store": Path(config["data"]["path"]).name,
        "differs_from_base": differs,
        "validations": validations,
        **{name: result[name] for name in KEPT},
    }


def main() -> None:
    args = parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    for line in args.sweep.read_text().splitlines() if args.sweep else []:
        if line.strip():
            train(line, args)
    found = [describe(path.parent) for path in sorted(args.dir.glob("*/result.json"))]
    publish({"embed_defaults": found}, args, "stores", "sweep")


if __name__ == "__main__":
    main()
