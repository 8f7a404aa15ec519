"""Debian's packages as a graph with types: ``python bench/debian_typed.py --help``.

``apt-get update; python bench/debian_typed.py --out debian``

Reads the package index that ``apt-get update`` leaves on a Debian machine, and writes arrays that
``lsm data convert npy`` takes, next to a packed copy. Nodes: packages; their sources and
maintainers; tags; virtual packages, which others provide. Features of a package: a hashed bag of
the words of its description's first line, int8 [256]; label: its section. All packages of a source
are in one split, drawn by ``--seed``. Names are kept but for those of maintainers, descriptions are
not. Prints counts as JSON: the figures of another day's index differ.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from debian_graph import LISTS, NAME, READER, find_index, read_packages

DIM = 256
BETWEEN_PACKAGES = {
    "depends": "Depends",
    "recommends": "Recommends",
    "suggests": "Suggests",
    "breaks": "Breaks",
    "replaces": "Replaces",
}
SHARES = {"train": 0.6, "val": 0.2, "test": 0.2}
WORD = re.compile(r"[a-z0-9]+")

Packages = dict[str, dict[str, str]]
Type = tuple[str, str, str]


def parse_args() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="directory for the arrays")
    arguments.add_argument("--lists", type=Path, default=Path(LISTS), help="apt's lists")
    arguments.add_argument("--seed", type=int, default=0, help="of the splits")
    return arguments.parse_args()


def wanted(fields: dict[str, str], field: str) -> set[str]:
    """The names in a field such as Depends, alternatives included."""
    found = (NAME.match(part.strip()) for part in re.split("[,|]", fields.get(field, "")))
    return {match.group() for match in found if match}


def source_of(fields: dict[str, str]) -> str:
    return fields.get("Source", fields["Package"]).partition(" (")[0]


def tags_of(fields: dict[str, str]) -> set[str]:
    return {tag.strip() for tag in fields.get("Tag", "").split(",") if "::" in tag}


def bag_of_words(text: str) -> np.ndarray:
    """Counts of hashed words: [256] int8."""
    row = np.zeros(DIM, np.int8)
    for word in WORD.findall(text.lower()):
        row[hashlib.sha256(word.encode()).digest()[0]] += 1
    return row


def edges_of(packages: Packages) -> dict[Type, set[tuple[str, str]]]:
    """(name, name) pairs of each edge type."""
    edges: dict[Type, set[tuple[str, str]]] = {}
    for name, fields in packages.items():

        def add(relation: str, end: str, names: Iterable[str], name: str = name) -> None:
            pairs = edges.setdefault(("package", relation, end), set())
            pairs.update((name, other) for other in names)

        for relation, field in BETWEEN_PACKAGES.items():
            others = wanted(fields, field) & packages.keys()
            add(relation, "package", others - {name})
        add("provides", "virtual", wanted(fields, "Provides"))
        add("tagged", "tag", tags_of(fields))
        add("built_from", "source", [source_of(fields)])
        add("maintained_by", "maintainer", [fields["Maintainer"]])
    return edges


def draw_splits(sources: list[str], seed: int) -> dict[str, np.ndarray]:
    """Numbers of the packages, whose ``sources`` these are, of each split."""
    unique = sorted(set(sources))
    order = np.random.default_rng(seed).permutation(len(unique))
    ends = np.cumsum([round(share * len(unique)) for share in SHARES.values()])[:-1]
    split_of = {}
    for split, numbers in zip(SHARES, np.split(order, ends), strict=True):
        split_of |= dict.fromkeys((unique[number] for number in numbers), split)
    found = np.array([split_of[source] for source in sources])
    return {split: np.flatnonzero(found == split) for split in SHARES}


def write(out: Path, packages: Packages, seed: int) -> dict[str, dict[str, int]]:
    """Writes the arrays; returns the counts."""
    edges = edges_of(packages)
    names = {"package": sorted(packages)}
    for (_, _, end), pairs in edges.items():
        if end != "package":
            names[end] = sorted({other for _, other in pairs})
    ids = {name: {node: i for i, node in enumerate(nodes)} for name, nodes in names.items()}
    for name, nodes in names.items():
        folder = out / "nodes" / name
        folder.mkdir(parents=True)
        if name == "maintainer":  # names of people are not needed
            (folder / "num_nodes.txt").write_text(f"{len(nodes)}\n")
        else:
            (folder / "names.txt").write_text("".join(f"{node}\n" for node in nodes))
    in_order = [packages[name] for name in names["package"]]
    folder = out / "nodes/package"
    sections = sorted({fields["Section"] for fields in in_order})
    rows = np.stack([bag_of_words(fields["Description"]) for fields in in_order])
    np.save(folder / "node_feat.npy", rows)
    labels = [sections.index(fields["Section"]) for fields in in_order]
    np.save(folder / "node_label.npy", np.array(labels, np.int16))
    for split, numbers in draw_splits([*map(source_of, in_order)], seed).items():
        np.save(folder / f"{split}_idx.npy", numbers.astype(np.int32))
    for (start, relation, end), pairs in edges.items():
        folder = out / "edges" / f"{start},{relation},{end}"
        folder.mkdir(parents=True)
        numbers = np.array(sorted((ids[start][a], ids[end][b]) for a, b in pairs), np.int32)
        np.save(folder / "edge_index.npy", np.ascontiguousarray(numbers.T))
    return {
        "nodes": {name: len(nodes) for name, nodes in names.items()},
        "edges": {relation: len(pairs) for (_, relation, _), pairs in edges.items()},
        "classes": {section: labels.count(i) for i, section in enumerate(sections)},
    }


def pack(folder: Path) -> Path:
    """Packs ``folder``, with the same bytes from the same files."""
    packed = folder.with_name(f"{folder.name}.tar.xz")
    with tarfile.open(packed, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(folder.parent)))
            content = path.read_bytes()
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed


def main() -> None:
    args = parse_args()
    index = find_index(args.lists)
    done = subprocess.run([READER, "cat-file", index], capture_output=True, check=True, timeout=300)
    found = list(read_packages(done.stdout.decode()))
    packages = {fields["Package"]: fields for fields in found}  # the last of one name
    args.out.mkdir(parents=True)
    counts = write(args.out, packages, args.seed)
    made = {
        "name": args.out.name,
        "description": "Packages of Debian, by what they need, are made of and who maintains them",
        "index": index.name.partition("_dists_")[2],  # without its mirror
        "sha256": hashlib.sha256(done.stdout).hexdigest(),
        "paragraphs": len(found),
        "split": f"all packages of a source in one; sources drawn with seed {args.seed}: {SHARES}",
        **counts,
    }
    (args.out / "meta.json").write_text(json.dumps(made, indent=1) + "\n")
    made["packed_bytes"] = pack(args.out).stat().st_size
    print(json.dumps(made))


if __name__ == "__main__":
    main()
