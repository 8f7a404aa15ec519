"""A knowledge graph of Debian's packages, as triples: ``python bench/debian_graph.py --help``.

``apt-get update; python bench/debian_graph.py --out triples/debian``

Reads the package index that ``apt-get update`` leaves on a Debian machine: the largest file of
binary packages in ``--lists``. A package's head is its name. Relations are its fields: packages
that it depends on, recommends, suggests, breaks, conflicts with, replaces, provides or enhances,
its source, section and maintainer, and one relation for each facet of its tags.
``--share`` of the packages are drawn by ``--seed``; then entities with fewer than ``--degree``
edges are left out, until none is left. Writes train, valid and test with ``--valid`` and ``--test``
of the edges. Every entity of valid and test has an edge in train. Prints what was read and written
as JSON: the figures of another day's index differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

Edge = tuple[str, str, str]

LISTS = "/var/lib/apt/lists"
READER = "/usr/lib/apt/apt-helper"  # unpacks an index in whatever way apt keeps it
PACKAGES = ("Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances", "Breaks", "Conflicts")
PACKAGES += ("Replaces", "Provides")
VALUES = ("Section", "Maintainer", "Source")
NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")


def parse_args() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="directory for the triples")
    arguments.add_argument("--lists", type=Path, default=Path(LISTS), help="apt's lists")
    arguments.add_argument("--share", type=float, default=0.4, help="of the packages")
    arguments.add_argument("--degree", type=int, default=4, help="fewest edges of an entity")
    arguments.add_argument("--valid", type=float, default=0.05, help="share of the edges")
    arguments.add_argument("--test", type=float, default=0.05, help="share of the edges")
    arguments.add_argument("--seed", type=int, default=0)
    return arguments.parse_args()


def find_index(lists: Path) -> Path:
    found = sorted(lists.glob("*_Packages*"), key=lambda path: path.stat().st_size)
    if not found:
        raise SystemExit(f"--lists: no index of packages in {lists}; run apt-get update")
    return found[-1]


def read_packages(text: str) -> Iterator[dict[str, str]]:
    """The fields of each package; a field of several lines as one."""
    for paragraph in text.replace("\n ", " ").split("\n\n"):
        lines = [line.partition(": ") for line in paragraph.splitlines()]
        fields = {name: value for name, _, value in lines}
        if "Package" in fields:
            yield fields


def edges_of(fields: dict[str, str]) -> Iterator[Edge]:
    """The edges whose head is the package, some of them more than once."""
    head = fields["Package"]
    for name in PACKAGES:
        for wanted in re.split("[,|]", fields.get(name, "")):
            found = NAME.match(wanted.strip())
            if found:
                yield head, name.lower(), found.group()
    for name in VALUES:
        value = fields.get(name, head if name == "Source" else "").partition(" (")[0]
        if value:
            yield head, name.lower(), f"{name.lower()}:{value}"
    for tag in fields.get("Tag", "").split(","):
        facet, _, value = tag.strip().partition("::")
        if value:
            yield head, f"tag:{facet}", f"{facet}::{value}"


def prune(edges: list[Edge], degree: int) -> list[Edge]:
    """The edges among entities with at least ``degree`` of them."""
    while True:
        degrees = Counter(head for head, _, _ in edges) + Counter(tail for _, _, tail in edges)
        kept = [edge for edge in edges if min(degrees[edge[0]], degrees[edge[2]]) >= degree]
        if len(kept) == len(edges):
            return kept
        edges = kept


def split(edges: list[Edge], valid: float, test: float, draw: random.Random) -> dict:
    """Edges by split. An edge that is the first of its head, relation or tail is in train."""
    edges = draw.sample(edges, len(edges))
    seen: set[tuple[str, str]] = set()
    train, others = [], []
    for head, relation, tail in edges:
        names = {("entity", head), ("entity", tail), ("relation", relation)}
        (others if names <= seen else train).append((head, relation, tail))
        seen |= names
    num_valid, num_test = round(len(edges) * valid), round(len(edges) * test)
    return {
        "train": train + others[num_valid + num_test :],
        "valid": others[:num_valid],
        "test": others[num_valid : num_valid + num_test],
    }


def main() -> None:
    args = parse_args()
    index = find_index(args.lists)
    done = subprocess.run([READER, "cat-file", index], capture_output=True, check=True, timeout=300)
    packages = list(read_packages(done.stdout.decode()))
    draw = random.Random(args.seed)
    drawn = draw.sample(packages, round(len(packages) * args.share))
    edges = prune(sorted({edge for fields in drawn for edge in edges_of(fields)}), args.degree)
    splits = split(edges, args.valid, args.test, draw)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, triples in splits.items():
        lines = "".join("\t".join(edge) + "\n" for edge in triples)
        (args.out / f"{name}.tsv").write_text(lines)
    made = {
        "index": index.name,
        "sha256": hashlib.sha256(done.stdout).hexdigest(),
        "packages": len(packages),
        "packages_drawn": len(drawn),
        "entities": len({entity for head, _, tail in edges for entity in (head, tail)}),
        "relations": len({relation for _, relation, _ in edges}),
        **{name: len(triples) for name, triples in splits.items()},
    }
    (args.out / "made.json").write_text(json.dumps(made, indent=1) + "\n")
    print(json.dumps(made))


if __name__ == "__main__":
    main()
