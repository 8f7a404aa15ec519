"""PyG's generated modules leave no files behind, and keep their source."""

import subprocess
import sys

import pytest

from support.training import environment

SCRIPT = """
import inspect, os, sys
from lsm.nn.models import build_model
from lsm.nn.options import ModelOptions
for name in ("graphsage", "gcn", "gat"):
    model = build_model(ModelOptions(name=name, hidden_dim=8), 6, 4, 2)
    assert inspect.getsource(type(model.convs[0]).propagate).startswith("def propagate(")
os._exit(0)  # as a rank ends whose job has failed
"""


@pytest.mark.slow
def test_a_process_leaves_no_generated_files(tmp_path):
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(
        command, env=environment(TMPDIR=str(tmp_path)), capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left == []
