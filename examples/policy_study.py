"""Compares cache policies for a graph: python examples/policy_study.py STORE

Writes a trace of the node ids that training would request, simulates each policy over
it, and prints the share of the requests that would be read from storage.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

POLICIES = ["lru", "static", "hybrid", "lookahead", "optimal"]


def run(command: str, *options: object) -> None:
    words = [sys.executable, "-m", "lsm", *command.split(), *map(str, options)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--fractions", default="0.05,0.1,0.2", help="of all rows")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        trace, results = Path(folder, "trace.npz"), Path(folder, "results.json")
        sampling = f"--num-neighbors 10,5 --batch-size {arguments.batch_size}"
        more = "--epochs 2 --score reverse_pagerank"
        run(f"trace {sampling} {more}", arguments.store, "--out", trace)
        with np.load(trace) as arrays:
            num_nodes = int(arrays["num_nodes"])
        fractions = [float(text) for text in arguments.fractions.split(",")]
        lines = [max(32, int(part * num_nodes) // 32 * 32) for part in fractions]
        cache = f"--lines {','.join(map(str, lines))} --window 64"
        policies = f"--policies {','.join(POLICIES)}"
        run(f"ablate {policies} {cache}", "--trace", trace, "--json", results)
        records = json.loads(results.read_text())
    read = {(r["policy"], r["lines"]): r["misses"] / r["requests"] for r in records}
    print(f"{'rows cached':<12}" + "".join(f"{part:>8.0%}" for part in fractions))
    for policy in POLICIES:
        shares = (f"{read[policy, num_lines]:>8.3f}" for num_lines in lines)
        print(f"{policy:<12}" + "".join(shares))


if __name__ == "__main__":
    main()
