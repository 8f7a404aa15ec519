"""Losses of a matrix of small runs, bit for bit: ``python bench/losses.py --help``.

Trains every case of the matrix (engines, policies, kinds of sampling, models, ranks, a run that is
stopped and continues; embeddings by model, loss, memory and ranks) and records each loss of each
iteration, and the results, as exact numbers. ``--against FILE`` compares with an earlier record:
a change that moves code must move no loss. Losses are equal on one machine, with one build and one
torch only, so records are compared where they were made. ``--tree`` trains another checkout, built
in place; the cases are those of this one. An editable install hides other checkouts, so
``--python`` names a Python that has the dependencies only. Exit status 1 if a case fails, differs,
or is missing in the record or in this checkout.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from common import parser, publish

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ("test_accuracy", "valid_accuracy", "test_mrr", "test_hits_at_10", "valid_mrr")
GRAPH = ["--nodes", "3000", "--dim", "24", "--classes", "5", "--avg-degree", "8"]
TRIPLES = ["--kind", "triples", "--nodes", "2000", "--relations", "6", "--avg-degree", "6"]
TRAIN = [
    *("device=cpu", "train.batch_size=128", "train.epochs=2", "train.lr=0.01"),
    *("train.num_threads=1", "model.hidden_dim=16", "sampler.num_neighbors=[5, 3]"),
    *("metrics.tensorboard=false", "storage.profile=none", "storage.max_gap_bytes=0"),
]
EMBED = [
    *(
        "device=cpu",
        "embed.dim=16",
        "train.batch_size=512",
        "train.epochs=2",
        "train.num_threads=1",
    ),
    *("embed.num_negatives=64", "metrics.tensorboard=false", "embed.regularizer=none"),
    *("embed.rounds=1", "embed.shift_scores=false", "embed.lr=0.1", "train.eval_every=0"),
]
POOL = ["storage.engine=io_uring", "cache.policy=lookahead", "cache.bytes=48KiB", "cache.ways=8"]
POOL += ["cache.window=16", "cache.victim.mode=pool", "cache.victim.bytes=48KiB"]


@dataclass(frozen=True)
class Case:
    """One run, or several of one directory, each continuing the last."""

    keys: tuple[str, ...]
    ranks: int = 1
    is_embedding: bool = False
    then: tuple[str, ...] = ()
    """Further keys of a second run in the same directory; empty: there is none."""


def _graph_cases() -> dict[str, Case]:
    cases = {}
    for engine in ("memory", "mmap", "posix", "io_uring", "nvme"):
        cases[f"engine-{engine}"] = Case((f"storage.engine={engine}", "cache.policy=none"))
    for policy in ("lru", "clock", "static", "hybrid", "dynamic", "window", "lookahead"):
        tiers = [key for key in POOL if not key.startswith(("cache.policy", "cache.victim"))]
        cases[f"policy-{policy}"] = Case((*tiers, f"cache.policy={policy}"))
    cases["pool"] = Case(tuple(POOL))
    queues = [key.replace("mode=pool", "mode=queues") for key in POOL]
    cases["queues"] = Case(tuple(queues))
    cases["constant"] = Case((*POOL, "cache.constant.bytes=16KiB", "cache.static.bytes=16KiB"))
    for model in ("gcn", "gat"):
        cases[f"model-{model}"] = Case((f"model.name={model}",))
    cases["labor"] = Case(("sampler.kind=labor",))
    cases["labor-dependent"] = Case(
        ("sampler.kind=labor", "sampler.layer_dependency=true", "sampler.batch_dependency=4")
    )
    cases["ladies"] = Case(("sampler.kind=ladies", "sampler.num_neighbors=[256, 256]"))
    cases["bf16"] = Case(("train.precision=bf16",))
    cases["last"] = Case(("train.select=last", "train.eval_every=0", "train.weight_decay=0.001"))
    cases["threads"] = Case(("sampler.num_threads=2", "sampler.prefetch=8"))
    cases["continued"] = Case(tuple(POOL), then=("train.epochs=4",))
    cases["ranks"] = Case((), ranks=2)
    for mode in ("shared", "independent", "partition-aware"):
        cases[f"ranks-{mode}"] = Case((*POOL, f"comm.mode={mode}"), ranks=2)
    cases["ranks-gloo"] = Case((*POOL, "comm.transport=gloo"), ranks=2)
    cases["ranks-continued"] = Case(tuple(POOL), ranks=2, then=("train.epochs=3",))
    return cases


def _embedding_cases() -> dict[str, Case]:
    disk = ("embed.partitions=6", "embed.buffer=3")

    def case(*keys: str, ranks: int = 1, then: tuple[str, ...] = ()) -> Case:
        return Case(keys, ranks=ranks, is_embedding=True, then=then)

    cases = {
        f"embed-{model}": case(f"embed.model={model}")
        for model in ("dot", "distmult", "complex", "transe_l1", "transe_l2", "rotate")
    }
    for order in ("best", "legend", "beta"):
        cases[f"embed-disk-{order}"] = case(*disk, f"embed.order={order}")
    cases["embed-disk-rounds"] = case(*disk, "embed.rounds=2")
    for loss in ("logistic", "margin"):
        cases[f"embed-{loss}"] = case(f"embed.loss={loss}")
    cases["embed-continued"] = case(*disk, then=("train.epochs=4",))
    cases["embed-ranks"] = case("embed.partitions=8", "embed.buffer=3", ranks=2)
    return cases


CASES = _graph_cases() | _embedding_cases()


def parse_args() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--tree", type=Path, default=ROOT, help="the checkout that is run")
    options.add_argument("--python", default=sys.executable, help="the program that runs it")
    options.add_argument("--against", type=Path, help="a record to compare with")
    options.add_argument(
        "--added", nargs="+", default=[], choices=RESULTS, help="results that the record lacks"
    )
    options.add_argument("--only", default="*", help="names of cases, as a shell pattern")
    options.add_argument("--timeout-secs", type=float, default=300, help="of one run")
    return options.parse_args()


def run_lsm(args: argparse.Namespace, ranks: int, *arguments: str | Path) -> None:
    """``lsm ARGUMENTS`` of the tree. Raises RuntimeError with the end of what it printed."""
    python = [args.python, "-m"]
    if ranks > 1:
        python += ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"]
    done = subprocess.run(
        [*python, "lsm", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=args.timeout_secs,
        env=environment_of(args.tree),
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError("\n".join(done.stderr.strip().splitlines()[-5:]))


def environment_of(tree: Path) -> dict[str, str]:
    """Where Python finds the packages of ``tree`` first."""
    paths = os.pathsep.join(filter(None, (str(tree.resolve()), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def check_tree(args: argparse.Namespace) -> None:
    """Ends the program if Python imports another lsm than that of the tree: an editable install
    goes before all paths."""
    code = "import importlib.util as u; print(u.find_spec('lsm').origin)"
    command = [args.python, "-c", code]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=environment_of(args.tree), check=True
    )
    if not Path(done.stdout.strip()).is_relative_to(args.tree.resolve()):
        sys.exit(
            f"{args.python} imports {done.stdout.strip()}, not that of {args.tree}: "
            "--python names one that has the dependencies, but no lsm-gnn"
        )


def losses_of(run_dir: Path) -> dict:
    """Each iteration's loss, as a hexadecimal number, and the results."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    steps = [record for record in map(json.loads, lines) if record["kind"] == "step"]
    result = json.loads((run_dir / "result.json").read_text())
    return {
        "losses": [float(step["loss"]).hex() for step in steps],
        "results": {
            key: float(result[key]).hex() for key in RESULTS if result.get(key) is not None
        },
    }


def run_case(name: str, case: Case, stores: Path, args: argparse.Namespace) -> dict:
    """The losses of all runs of ``case``, in order."""
    run_dir = stores / "runs" / name
    command = ["embed", "train", "embed/base"] if case.is_embedding else ["train", "base"]
    store = stores / ("triples" if case.is_embedding else "graph")
    keys = [*(EMBED if case.is_embedding else TRAIN), *case.keys]
    keys += [f"data.path={store}", f"run.dir={run_dir}"]
    try:
        for more in [(), case.then] if case.then else [()]:
            run_lsm(args, case.ranks, *command, *keys, *more)
        return losses_of(run_dir)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def differences(ours: dict[str, dict], theirs: dict[str, dict], added: Sequence[str]) -> list[str]:
    """The cases that failed, that only one side has, or whose numbers differ, each with its first
    difference. ``added``: results that ``theirs`` may lack."""
    found = [f"{name}: is not in the record" for name in ours if name not in theirs]
    found += [f"{name}: is only in the record" for name in theirs if name not in ours]
    for name, case in ours.items():
        other = theirs.get(name)
        if "error" in case:
            found.append(f"{name}: failed: {case['error']}")
        elif other is not None and (at := _first_difference(case, other, added)):
            found.append(f"{name}: differs from the record at {at}")
    return found


def _first_difference(case: dict, other: dict, added: Sequence[str]) -> str:
    """Empty if there is none."""
    losses, recorded = case["losses"], other.get("losses", [])
    for iteration, pair in enumerate(zip_longest(losses, recorded)):
        if pair[0] != pair[1]:
            return f"iteration {iteration}"
    mine, its = case["results"], other.get("results", {})
    names = [name for name in RESULTS if name in its or name not in added]
    return ", ".join(name for name in names if mine.get(name) != its.get(name))


def main() -> int:
    args = parse_args()
    check_tree(args)
    chosen = {name: case for name, case in CASES.items() if fnmatch.fnmatch(name, args.only)}
    with tempfile.TemporaryDirectory() as folder:
        stores = Path(folder)
        for name, shape in (("graph", GRAPH), ("triples", TRIPLES)):
            run_lsm(args, 1, "data", "synth", *shape, "--seed", "7", "--out", stores / name)
        results = {}
        for name, case in chosen.items():
            results[name] = run_case(name, case, stores, args)
            print(f"{name}: {results[name].get('error', 'done')}", file=sys.stderr, flush=True)
    publish({"cases": results}, args, "tree", "python", "against")
    recorded = json.loads(args.against.read_text())["cases"] if args.against else results
    earlier = {name: case for name, case in recorded.items() if fnmatch.fnmatch(name, args.only)}
    found = differences(results, earlier, args.added)
    print(*found, f"{len(results)} cases, {len(found)} failed or differ", sep="\n", file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
