"""An iteration's demands on a GPU do not grow. The counts are of the emulated GPU, with which `make
test-emulated` runs this module."""

import json
import os
import subprocess
import sys

import pytest

from support.training import REPOSITORY

sys.path.append(str(REPOSITORY / "bench"))
import gpu_counts
from gpu_counts import Counts

# What an iteration took when the count was last made smaller.
LAUNCHES = {"sample": 8, "push": 3.2, "plan": 6, "replay": 3}
WAITS = {"sample": 2, "push": 1, "plan": 1, "replay": 1}
# Eight of each row from storage: its id, which the host would otherwise keep and search for.
COPIED_BYTES_PER_100K_IDS = 1.3e6
HOST_ACCESSES_PER_100K_IDS = 4e6  # those of polls among them, which differ from run to run

EMULATED = os.environ.get("LSM_EMULATED_CORE")
BYTES = "bytes over PCIe per 100K planned ids, without rows"


def run_count(*options, **environment):
    return subprocess.run(
        [sys.executable, REPOSITORY / "bench/gpu.py", "--count", *options],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.skipif(EMULATED is None, reason="make test-emulated builds the emulated GPU")
def test_counts_do_not_grow(tmp_path):
    done = run_count("--json", tmp_path / "counts.json")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert json.loads((tmp_path / "counts.json").read_text()) == made
    parts = made["per_iteration"]
    assert {
        part: c["launches"] for part, c in parts.items() if c["launches"] > LAUNCHES[part]
    } == {}
    assert {part: c["waits"] for part, c in parts.items() if c["waits"] > WAITS[part]} == {}
    assert {part: c["allocations"] for part, c in parts.items() if c["allocations"] > 0} == {}
    counts = made["counts"]
    assert 0 < counts[BYTES]["now"] < COPIED_BYTES_PER_100K_IDS
    accesses = counts["host loads and stores per 100K planned ids"]["now"]
    assert 0 < accesses < HOST_ACCESSES_PER_100K_IDS
    # Other threads than the one that takes a pipeline's batches do all the waiting.
    assert counts["host waits of the thread that trains"]["now"] == 0
    assert made["pipeline"]["batches"] > 0
    assert made["pipeline"]["waits"] >= made["pipeline"]["batches"]
    # Nothing is left out: the parts are the whole iteration.
    launches = counts["launches per iteration"]["now"]
    assert launches == pytest.approx(sum(c["launches"] for c in parts.values()), abs=0.5)
    assert set(parts) == set(LAUNCHES)


def test_figures_of_counts():
    """Two iterations that plan 500 ids each and move 1,000 bytes of rows."""

    def counts(launches, waits, up, down, far=0.0, accesses=0.0):
        return Counts(launches, waits, up, down, far, 0.0, accesses, 0.0)

    sums = {
        "sample": counts(40, 20, 7000, 7000, 7000, 7000),  # not a part of planning
        "push": counts(4, 2, 3000, 10, accesses=100),
        "plan": counts(10, 4, 0, 5000, accesses=600),
        "replay": counts(6, 2, 1990, 0, far=1500, accesses=300),
    }
    made = gpu_counts.summary(sums, iterations=2, planned=1000, row_bytes=1000)
    now = {what: line["now"] for what, line in made["counts"].items()}
    assert now["launches per iteration"] == 30
    assert now["host waits per iteration"] == 14
    assert now[BYTES] == 100 * (3010 + 5000 + 1990 + 1500 - 1000)
    assert now["host loads and stores per 100K planned ids"] == 100 * 1000
    assert made["per_iteration"]["push"]["launches"] == 2


def test_without_the_emulated_gpu_it_says_what_builds_it(monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_counts, "BUILT", gpu_counts.ROOT / "build/nowhere")
    monkeypatch.delenv("LSM_EMULATED_CORE", raising=False)
    with pytest.raises(SystemExit, match="make test-emulated"):
        gpu_counts.load_emulated()
