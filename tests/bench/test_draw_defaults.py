"""The README's picture shows the figures of its record."""

import json
import re
import subprocess
import sys

from support.store_files import REPOSITORY

PICTURE = REPOSITORY / "docs" / "assets" / "iterations-by-memory.svg"
RECORD = REPOSITORY / "bench" / "results" / "2026-11-22-defaults.json"


def texts(path):
    return re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text())


def test_the_picture_in_the_repository_is_that_of_the_record(tmp_path):
    drawn = tmp_path / "drawn.svg"
    script = REPOSITORY / "bench" / "draw_defaults.py"
    subprocess.run([sys.executable, script, "--out", drawn], check=True, timeout=300)
    assert texts(drawn) == texts(PICTURE)
    reached = [
        case["reached"][program]["iterations_per_s"]
        for entry in json.loads(RECORD.read_text())
        for case in entry["defaults"]
        for program in ("defaults", "GraphBolt", "PyG")
        if program in case["reached"]
    ]
    shown = [float(text) for text in texts(drawn) if re.fullmatch(r"\d+\.\d", text)]
    assert sorted(shown) == sorted(round(rate, 1) for rate in reached if rate > 0)
