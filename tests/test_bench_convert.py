"""The conversion benchmark runs, at a small size, so that it cannot rot."""

import json
import os
import subprocess
import sys

import pytest
from store_files import REPOSITORY


@pytest.mark.parametrize("options", [["--stripes", "2"], ["--synth"]])
def test_record(tmp_path, options):
    command = [sys.executable, str(REPOSITORY / "bench/convert.py"), "--bytes", "4MiB", "--check"]
    result = subprocess.run(
        [*command, "--dir", str(tmp_path), *options],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )
    record = json.loads(result.stdout)
    assert record["num_nodes"] == 1024
    assert 4 << 20 < record["bytes"] < 5 << 20
    assert record["rss_before_bytes"] <= record["peak_rss_bytes"]
    assert list(tmp_path.iterdir()) == []
