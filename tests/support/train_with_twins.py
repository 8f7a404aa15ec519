"""Runs ``lsm train`` on the host, with the twin of a cache that ranks share in GPU memory.

train_with_twins.py CONFIG [key=value ...]
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from lsm import cli
    from lsm.train import rows
    from support.gpu_twin import twin_opener

    rows.open_features = twin_opener(planner="device", prefetch_rows=20, pool_bytes=1 << 16)
    sys.argv = ["lsm", "train", *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
