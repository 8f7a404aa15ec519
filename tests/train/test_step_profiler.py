"""Traces of torch.profiler, and torch.compile."""

import json

import torch

from lsm.train.trainer import train
from support.training import config, losses, make_store


def test_a_trace_holds_every_span_and_changes_no_loss(tmp_path):
    store = make_store(tmp_path / "store")
    plain = config(store, tmp_path / "plain", "train.precision=tf32")
    profiled = config(store, tmp_path / "profiled", "metrics.profile_steps=3")
    train(plain)
    train(profiled)
    assert losses(tmp_path / "profiled") == losses(tmp_path / "plain")
    trace = json.loads((tmp_path / "profiled" / "profile" / "rank0.json").read_text())
    names = [event.get("name") for event in trace["traceEvents"]]
    assert names.count("lsm/step") == 3
    assert {"lsm/forward", "lsm/backward", "lsm/optimizer"} <= set(names)
    assert not (tmp_path / "plain" / "profile").exists()


def test_compile_wraps_the_model(tmp_path, monkeypatch):
    calls = []

    def compile_(model, dynamic):
        calls.append(dynamic)
        return model

    monkeypatch.setattr(torch, "compile", compile_)
    train(config(make_store(tmp_path / "store"), tmp_path / "run", "train.compile=true"))
    assert calls == [True]
