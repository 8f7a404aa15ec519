"""Linear checks of Debian's typed graph: ``python bench/debian_linear.py debian``.

Test accuracy of a logistic regression (L2, L-BFGS, whole batches) from the arrays that
``bench/debian_typed.py`` writes: a package's features alone; with the mean features of the packages
that it depends on and of those that depend on it; with the mean features of its maintainer's
packages, too. A model on the graph has to beat these. The penalty is the best on the validation
split. Prints one JSON line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from common import parser, publish

PENALTIES = (1e-5, 1e-4, 1e-3)


def mean_over(pairs: np.ndarray, rows: torch.Tensor, num_means: int) -> torch.Tensor:
    """Means of ``rows`` by group: [num_means, dim]. ``pairs``: [2, n], row and its group."""
    members, groups = torch.from_numpy(pairs).long()
    sums = torch.zeros(num_means, rows.shape[1]).index_add_(0, groups, rows[members])
    sizes = torch.bincount(groups, minlength=num_means).clamp(min=1)
    return sums / sizes[:, None]


def fit(
    rows: torch.Tensor, labels: torch.Tensor, splits: dict[str, torch.Tensor], penalty: float
) -> dict[str, float]:
    """Accuracies by split."""
    train = splits["train"]
    scale = rows[train].std(0).clamp(min=1e-3)
    rows = (rows - rows[train].mean(0)) / scale
    weight = torch.zeros(rows.shape[1], int(labels.max()) + 1, requires_grad=True)
    bias = torch.zeros(weight.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=60, line_search_fn="strong_wolfe")
    x, y = rows[train], labels[train]

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(x @ weight + bias, y)
        loss = loss + penalty * weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        hits = (rows @ weight + bias).argmax(1) == labels
    return {split: round(float(hits[ids].float().mean()), 4) for split, ids in splits.items()}


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("arrays", type=Path, help="directory that bench/debian_typed.py made")
    args = arguments.parse_args()
    folder = args.arrays
    packages = folder / "nodes/package"
    labels = torch.from_numpy(np.load(packages / "node_label.npy")).long()
    splits = {
        split: torch.from_numpy(np.load(packages / f"{split}_idx.npy")).long()
        for split in ("train", "val", "test")
    }

    def edges(name: str) -> np.ndarray:
        return np.load(folder / "edges" / name / "edge_index.npy")

    alone = torch.from_numpy(np.load(packages / "node_feat.npy")).float()
    depends = edges("package,depends,package")
    maintained = edges("package,maintained_by,maintainer")
    needed = mean_over(depends[::-1].copy(), alone, len(alone))
    needing = mean_over(depends, alone, len(alone))
    of_maintainers = mean_over(maintained, alone, int(maintained[1].max()) + 1)
    of_packages = of_maintainers[torch.from_numpy(maintained[1]).long()]
    inputs = {
        "features": [alone],
        "with dependencies": [alone, needed, needing],
        "with maintainers": [alone, needed, needing, of_packages],
    }
    accuracies = {}
    for name, parts in inputs.items():
        rows = torch.cat(parts, 1)
        found = {penalty: fit(rows, labels, splits, penalty) for penalty in PENALTIES}
        best = max(found, key=lambda penalty: found[penalty]["val"])
        accuracies[name] = {"penalty": best, **found[best]}
    publish({"accuracy": accuracies}, args, "arrays")


if __name__ == "__main__":
    main()
