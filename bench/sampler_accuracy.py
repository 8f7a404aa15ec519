"""Test accuracy of each kind of sampling, against `neighbor`.

    python bench/sampler_accuracy.py computers=STORE physics=STORE [--seeds 3] [--json FILE]

Trains the same model on each store by each kind, with each seed, through ``lsm train``, and prints
one JSON record: accuracies, their means, and how far each mean is from that of `neighbor`. ladies
takes layers of --layer nodes. Accuracies are the same on every machine with the same arithmetic.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

from common import parser, publish

KINDS = {
    "neighbor": [],
    "labor": ["sampler.kind=labor"],
    "labor, batch_dependency 64": ["sampler.kind=labor", "sampler.batch_dependency=64"],
    "ladies": ["sampler.kind=ladies", "sampler.num_neighbors=[{layer}, {layer}]"],
    "ladies, debias": [
        *("sampler.kind=ladies", "sampler.debias=true"),
        "sampler.num_neighbors=[{layer}, {layer}]",
    ],
}
SETTINGS = ("model.hidden_dim=256", "model.dropout=0.3", "train.lr=0.002", "train.batch_size=256")
TIMEOUT_SECS = 900


def main() -> None:
    options = parse()
    stores = dict(each.split("=", 1) for each in options.stores)
    rows = []
    for store, path in stores.items():
        mean_of_neighbor = None
        for kind in KINDS:
            each = [accuracy(path, kind, seed, options) for seed in range(options.seeds)]
            mean = statistics.fmean(each)
            mean_of_neighbor = mean if mean_of_neighbor is None else mean_of_neighbor
            rows.append(
                {
                    "store": store,
                    "kind": kind,
                    "accuracies": each,
                    "mean": round(mean, 4),
                    "beside_neighbor": round(mean - mean_of_neighbor, 4),
                }
            )
            print(json.dumps(rows[-1]), file=sys.stderr)
    publish({"sampler_accuracy": rows}, options, "stores")


def accuracy(path: str, kind: str, seed: int, options: argparse.Namespace) -> float:
    """Test accuracy of one training run."""
    with tempfile.TemporaryDirectory() as run_dir:
        command = [sys.executable, "-m", "lsm", "train", "base", f"data.path={path}"]
        command += [f"run.dir={run_dir}/run", f"train.seed={seed}", "metrics.loggers=[]"]
        command += [*SETTINGS, f"train.epochs={options.epochs}", "checkpoint.every_epochs=0"]
        command += [setting.format(layer=options.layer) for setting in KINDS[kind]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECS)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])["test_accuracy"]


def parse() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("stores", nargs="+", metavar="NAME=STORE")
    arguments.add_argument("--seeds", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--layer", type=int, default=2048, help="nodes of a layer of ladies")
    return arguments.parse_args()


if __name__ == "__main__":
    main()
