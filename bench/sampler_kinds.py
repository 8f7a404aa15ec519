"""Rows that each kind of sampling needs, and that it reads behind a cache.

    python bench/sampler_kinds.py [--nodes N] [--degree D] [--json FILE]

Prints one JSON record of counts, which are the same on every machine. Each kind samples the same
seeds of a synthetic graph. Input nodes are the nodes whose rows a batch needs. Misses are those of
a cache for --cache of the nodes, in the second half of the iterations. ladies has no fanouts and is
left out.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from common import BATCH_SIZE, numbers, parser, publish
from lsm.ablation import runs
from lsm.ablation.trace_sampling import sample_trace
from lsm.data.synth import synthesize
from lsm.sampler.options import Sampling

KINDS = {
    "neighbor": Sampling(),
    "labor": Sampling("labor"),
    "labor, layer_dependency": Sampling("labor", layer_dependency=True),
    "labor, batch_dependency 64": Sampling("labor", batch_dependency=64),
    "labor, both": Sampling("labor", True, 64),
}


def main() -> None:
    options = parse()
    fanouts = numbers(options.fanouts)
    with tempfile.TemporaryDirectory() as folder:
        store = synthesize(
            Path(folder) / "store",
            nodes=options.nodes,
            avg_degree=options.degree,
            degree_exponent=options.degree_exponent,
            dim=1,
            classes=2,
            progress=False,
        )
        rows = [measure(store, name, fanouts, options) for name in KINDS]
        edges = store.num_edges
    for row in rows:
        for key in ("input_nodes", "misses"):
            row[f"{key}_relative"] = round(row[key] / rows[0][key], 4)
    graph = {"nodes": options.nodes, "edges": edges}
    publish(graph | {"sampler_kinds": rows}, options)


def measure(store, name: str, fanouts: list[int], options: argparse.Namespace) -> dict:
    """Input nodes and misses per iteration."""
    trace = sample_trace(
        store,
        fanouts,
        options.batch_size,
        iterations=options.iterations,
        sampling=KINDS[name],
        progress=False,
    )
    lines = max(32, int(options.cache * options.nodes) // 32 * 32)
    cache = runs.Combination(policy=options.policy, lines=lines, window=options.window)
    counts = runs.run(trace, [cache], progress=False)[0]
    half = trace.num_iterations - trace.num_iterations // 2
    return {
        "kind": name,
        "input_nodes": round(trace.mean_list, 1),
        "misses": round(counts["misses_2nd"] / half, 1),
    }


def parse() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--nodes", type=int, default=1_000_000)
    arguments.add_argument("--degree", type=float, default=50)
    arguments.add_argument("--degree-exponent", type=float, default=2.5, help="of the in-degrees")
    arguments.add_argument("--fanouts", default="10,10,10")
    arguments.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    arguments.add_argument("--iterations", type=int, default=128)
    arguments.add_argument("--cache", type=float, default=0.05, help="share of the nodes")
    arguments.add_argument("--policy", default="lookahead")
    arguments.add_argument("--window", type=int, default=64)
    return arguments.parse_args()


if __name__ == "__main__":
    main()
