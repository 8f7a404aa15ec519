"""Filtered MRR of embeddings, in memory and from disk: ``python bench/embed_quality.py --help``.

``python bench/embed_quality.py --sources shared/data --dir SCRATCH``

Converts the triples that each of ``--configs`` names (``data.path: stores/NAME`` is SOURCES/NAME),
and runs ``lsm embed train`` on them twice: with one partition in memory, and from disk with
``--partitions`` of which ``--buffer`` are in memory. ``short_by`` is how much lower the MRR from
disk is. SCRATCH keeps the run directories and the summary of each run that has ended. The same
command on the same commit continues where an earlier one stopped; on another commit it begins
anew, but for runs of ``--accept`` that have ended. Each run in the record has the commit that it
was made with. Prints one JSON record.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from common import parser, publish, run_lsm, run_program
from lsm.core import record
from lsm.embed.config import load_embed_config

CONFIGS = "fb15k-237,fb15k-237-distmult,fb15k-237-transe,wn18rr"
KEPT = ("test_mrr", "test_hits_at_1", "test_hits_at_3", "test_hits_at_10", "valid_mrr", "epochs")
KEPT += ("partitions", "bytes_read", "bytes_written", "seconds", "protocol", "commit")


def parse_args() -> argparse.Namespace:
    arguments = parser(__doc__)
    arguments.add_argument("--sources", type=Path, required=True, help="directories of triples")
    arguments.add_argument("--dir", type=Path, required=True, help="scratch, which is kept")
    arguments.add_argument("--configs", default=CONFIGS, help="names in configs/embed")
    arguments.add_argument("--partitions", type=int, default=8, help="from disk")
    arguments.add_argument("--buffer", type=int, default=3, help="from disk")
    arguments.add_argument("--forms", default="memory,disk")
    arguments.add_argument("--accept", default="", help="other commits, of runs that have ended")
    arguments.add_argument("--set", action="append", default=[], help="more keys of both forms")
    arguments.add_argument("--disk-set", action="append", default=[], help="more, from disk")
    arguments.add_argument("--timeout-secs", type=float, default=36000, help="of one run")
    return arguments.parse_args()


def find_store(config: str, args: argparse.Namespace) -> Path:
    """The store of triples of ``config``, converted if it is not there yet."""
    name = Path(load_embed_config(config, []).data.path or config).name
    store = args.dir / "stores" / name
    if not store.exists():
        run_lsm("data", "convert", "triples", args.sources / name, "--out", store)
    return store


def train(config: str, form: str, keys: list[str], args: argparse.Namespace) -> dict:
    """The summary of the run; that of an earlier call if it made the same run."""
    commit = record.make({})["commit"]
    run_dir = args.dir / f"{config}-{form}"
    ended = run_dir.with_suffix(".json")
    about = {"config": config, "form": form, "keys": keys, "commit": commit}
    if ended.exists():
        earlier = json.loads(ended.read_text())
        accepted = earlier["commit"] in (commit, *args.accept.split(","))
        if accepted and earlier["keys"] == keys:
            return earlier["summary"] | {"commit": earlier["commit"]}
    # A run of this commit that was cut off continues.
    begun = run_dir.with_suffix(".begun")
    is_same = begun.exists() and json.loads(begun.read_text()) == about
    begun.write_text(json.dumps(about))
    command = [sys.executable, "-m", "lsm", "embed", "train", f"embed/{config}"]
    command += [*keys, f"data.path={find_store(config, args)}", f"run.dir={run_dir}"]
    command += ["checkpoint.resume=auto" if is_same else "checkpoint.resume=never"]
    print("+", *command[3:], file=sys.stderr, flush=True)
    summary = run_program(command, timeout=args.timeout_secs)
    ended.write_text(json.dumps(about | {"summary": summary}))
    return summary | {"commit": commit}


def main() -> None:
    args = parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    on_disk = [f"embed.partitions={args.partitions}", f"embed.buffer={args.buffer}", *args.disk_set]
    common = ["metrics.loggers=[]", "metrics.jsonl=false", *args.set]
    results = []
    for config in args.configs.split(","):
        store = find_store(config, args)
        forms = {"memory": common, "disk": [*common, *on_disk]}
        runs = {form: train(config, form, forms[form], args) for form in args.forms.split(",")}
        runs = {form: {name: run[name] for name in KEPT} for form, run in runs.items()}
        results.append({"config": config, "store": store.name, **runs})
        if len(runs) == 2:
            short_by = runs["memory"]["test_mrr"] - runs["disk"]["test_mrr"]
            results[-1]["short_by"] = short_by
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    publish({"embed_quality": results}, args, "sources")


if __name__ == "__main__":
    main()
