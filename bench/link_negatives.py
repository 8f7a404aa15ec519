"""MRR of links by the negatives that a network is trained with, over several seeds.

``python bench/link_negatives.py --graph shared/data/coauthor-physics --workdir tmp``

``--graph`` names a folder with ``edge_index.npy`` [2, E] and ``node_feat.npy`` [N, d]; ``--store``
a store that has splits. Each run is ``lsm train`` with ``train.task=link`` and all rows in memory,
for ``--epochs``; the best epoch of validation is tested. A way is KIND:NEGATIVES, such as
``uniform:10``; the first is the one that the others are compared with. Further arguments are
overrides of the configuration for all runs. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

import lsm
from common import about, numbers, parser, publish, run_lsm

WAYS = "uniform:10,joint:64,inbatch:0,resident:1024"


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    source = arguments.add_mutually_exclusive_group(required=True)
    source.add_argument("--graph", type=Path, help="a folder of .npy files")
    source.add_argument("--store", type=Path, help="a store with splits")
    arguments.add_argument("--ways", default=WAYS, help="KIND:NEGATIVES of each way")
    arguments.add_argument("--seeds", default="0,1,2")
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--workdir", type=Path)
    arguments.add_argument("overrides", nargs="*", help="KEY=VALUE for all runs")
    return arguments.parse_args()


def convert(graph: Path, path: Path) -> Path:
    """A store of ``graph`` with splits."""
    data = Data(
        x=torch.from_numpy(np.load(graph / "node_feat.npy")),
        edge_index=torch.from_numpy(np.load(graph / "edge_index.npy")).long(),
    )
    lsm.LinkSplits.make(lsm.GraphStore.from_pyg(data, path))
    return path


def run(store: Path, run_dir: Path, way: str, seed: int, args: argparse.Namespace) -> dict:
    """The figures of a run."""
    kind, _, count = way.partition(":")
    options = {
        "data.path": store,
        "run.dir": run_dir,
        "train.task": "link",
        "train.seed": seed,
        "train.epochs": args.epochs,
        "links.negatives": kind,
        "links.num_negatives": max(1, int(count or 1)),
        "storage.engine": "memory",
        "cache.policy": "none",
    }
    given = [f"{key}={value}" for key, value in options.items()]
    run_lsm("train", "base", *given, *args.overrides)
    found = json.loads((run_dir / "result.json").read_text())
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    valid = [each["valid_mrr"] for each in map(json.loads, lines) if "valid_mrr" in each]
    return {"test_mrr": found["test_mrr"], "valid_mrr": valid, "seconds": found["seconds"]}


def compared(runs: dict[str, list[dict]]) -> dict[str, dict[str, float]]:
    """Mean and deviation of the test's MRR, and its difference from that of the first way."""
    means = {way: statistics.mean(each["test_mrr"] for each in runs[way]) for way in runs}
    first = means[next(iter(means))]
    return {
        way: {
            "test_mrr": round(mean, 4),
            "deviation": round(statistics.pstdev(each["test_mrr"] for each in runs[way]), 4),
            "against_first": round(mean - first, 4),
        }
        for way, mean in means.items()
    }


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory(dir=args.workdir) as name:
        folder = Path(name)
        store = args.store or convert(args.graph, folder / "store")
        runs: dict[str, list[dict]] = {}
        for seed in numbers(args.seeds):
            for way in args.ways.split(","):
                run_dir = folder / f"{way.replace(':', '-')}-{seed}"
                runs.setdefault(way, []).append(run(store, run_dir, way, seed, args))
                print(way, seed, runs[way][-1], file=sys.stderr, flush=True)
        record = {"graph": about(lsm.GraphStore.open(store)), "runs": runs, "mrr": compared(runs)}
        publish(record, args)


if __name__ == "__main__":
    main()
