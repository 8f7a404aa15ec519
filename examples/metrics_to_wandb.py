"""Sends the records of a run to wandb: python examples/metrics_to_wandb.py RUN_DIR"""

import argparse
import json
from pathlib import Path

import wandb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    arguments = parser.parse_args()
    with wandb.init(project="my-graph", name=arguments.run_dir.name) as run:
        lines = (arguments.run_dir / "metrics.jsonl").read_text().splitlines()
        for number, line in enumerate(lines):
            record = json.loads(line)
            kind = record.pop("kind")  # step or epoch
            run.log(
                {f"{kind}/{key}": value for key, value in record.items()}, step=number
            )


if __name__ == "__main__":
    main()
