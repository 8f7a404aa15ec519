"""``lsm embed``."""

import json

import pytest

from support.command import lsm


@pytest.mark.parametrize(("ranks", "partitions"), [(1, 8), (2, 12)])
def test_order_prints_loads_and_lower_bound(monkeypatch, capsys, tmp_path, ranks, partitions):
    file = tmp_path / "order.json"
    arguments = ["--partitions", str(partitions), "--ranks", str(ranks), "--json", str(file)]
    assert lsm(monkeypatch, "embed", "order", *arguments) == 0
    *steps, summary = capsys.readouterr().out.splitlines()
    order = json.loads(file.read_text())
    assert len(steps) == ranks * len(order["states"])
    assert summary.startswith(f"best: {len(order['states'])} states (lower bound")
    assert f"{len(order['loads'])} of them while buckets are trained" in summary
    assert all(len(state) == 3 * ranks for state in order["states"])
    trained = [tuple(bucket) for state in order["buckets"] for bucket in state]
    everything = [(i, j) for i in range(partitions) for j in range(partitions)]
    assert sorted(trained) == everything
    for rank, mine in enumerate(order["by_rank"]):
        assert mine["states"] == [s[3 * rank : 3 * rank + 3] for s in order["states"]]
        for state, buckets in zip(mine["states"], mine["buckets"], strict=True):
            assert all(i in state and j in state for i, j in buckets)


def test_a_buffer_too_small_is_one_line(monkeypatch, capsys):
    assert lsm(monkeypatch, "embed", "order", "--partitions", "8", "--buffer", "2") == 1
    assert capsys.readouterr().err == "error: embed.buffer: expected at least 3, got 2\n"
