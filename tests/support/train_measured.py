"""Runs ``lsm train`` with a device that is measured although the store is small.

train_measured.py CONFIG [key=value ...]
"""

from __future__ import annotations

import sys


def main() -> None:
    from lsm import cli
    from lsm.storage import short_profile

    short_profile._LEAST_BYTES = 0
    sys.argv = ["lsm", "train", *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
