"""Training from disk: the same numbers as in memory, and after any interruption."""

import json
import math
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from lsm import native
from lsm.data.triples.store import TripleStore
from lsm.distributed.signals import Stopped
from lsm.embed import job, trainer
from lsm.embed.adagrad import initial_rows
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.orders.itinerary import Itinerary
from lsm.embed.orders.order import make_order
from lsm.embed.run import EmbeddingRun
from lsm.embed.table.frames import GpuFrames
from lsm.embed.trainer import EmbedTrainer, train
from lsm.storage.transfers import Transfers
from support.engines import QUEUED_ENGINES
from support.gpus import WITHOUT_GPU
from support.partitions import twin_frames
from support.triples import config, tables


def in_memory(settings, epochs=2):
    """The same order over one table that holds every entity: rows with state, then relations."""
    options, seed = settings.embed, settings.train.seed
    store = TripleStore.open(settings.data.path)
    n, size = options.partitions, settings.train.batch_size
    starts = store.partition_starts(n)
    keys = [native.batch_key(seed, p, 0, 0) for p in range(n + 1)]
    rows = torch.cat(
        [initial_rows(options, int(starts[p + 1] - starts[p]), keys[p]) for p in range(n)]
    )
    relations = initial_rows(options, options.relation_rows(store.num_relations), keys[n])
    partition_rows = int(starts[1])
    assert set(np.diff(starts)) == {partition_rows}
    edge_trainer = EdgeTrainer(rows, relations, options, partition_rows=partition_rows)
    edges = np.array(store.edges("train"), np.int64)
    of_edge = [np.searchsorted(starts, edges[:, k], side="right") - 1 for k in (0, 2)]
    order, rounds = make_order(options.order, n, options.buffer), options.rounds
    itinerary = Itinerary(order, 0, seed, rounds)
    for epoch in range(epochs):
        iteration = 0
        for step in itinerary.epoch(epoch):
            of_step = [
                drawn(
                    edges[(of_edge[0] == i) & (of_edge[1] == j)],
                    step.round,
                    rounds,
                    native.batch_key(seed, epoch, i * n + j, 0),
                )
                for i, j in step.buckets
            ]
            of_step = torch.from_numpy(np.concatenate(of_step))
            key = native.batch_key(seed, epoch, step.number, 0)
            order = torch.randperm(len(of_step), generator=torch.Generator().manual_seed(key))
            residents = [(int(starts[p]), int(starts[p + 1])) for p in sorted(step.frames)]
            for batch in of_step[order].split(size):
                key = native.batch_key(seed, epoch, iteration, 0)
                edge_trainer.train(batch, residents, key, iteration)
                iteration += 1
    return [rows.numpy().tobytes(), relations.numpy().tobytes()]


def drawn(edges, number, rounds, key):
    """The share of round ``number``; one round leaves edges in their order."""
    if rounds == 1:
        return edges
    order = torch.randperm(len(edges), generator=torch.Generator().manual_seed(key)).numpy()
    return edges[order[len(edges) * number // rounds : len(edges) * (number + 1) // rounds]]


@pytest.mark.parametrize("engine", [*QUEUED_ENGINES, "nvme"])
@pytest.mark.parametrize(
    ("n", "buffer", "order"), [(1, 3, "best"), (4, 3, "best"), (8, 3, "legend"), (6, 4, "beta")]
)
def test_training_from_disk_equals_training_in_memory(store, tmp_path, engine, n, buffer, order):
    settings = config(
        store,
        tmp_path / "run",
        f"embed.partitions={n}",
        f"embed.buffer={buffer}",
        f"embed.order={order}",
        f"storage.engine={engine}",
    )
    summary = train(settings)
    assert tables(tmp_path / "run") == in_memory(settings)
    assert (summary["partitions"], summary["epochs"], summary["world_size"]) == (n, 2, 1)


def test_an_epoch_of_several_rounds_equals_one_in_memory(store, tmp_path):
    more = ("embed.partitions=8", "embed.rounds=3")
    settings = config(store, tmp_path / "run", *more)
    summary = train(settings)
    assert tables(tmp_path / "run") == in_memory(settings)
    once = train(config(store, tmp_path / "once", "embed.partitions=8"))
    assert tables(tmp_path / "once") != tables(tmp_path / "run")
    # The last validation and the test read the same number of partitions in both.
    assert 1.5 * once["bytes_read"] < summary["bytes_read"] < 3 * once["bytes_read"]
    first = train(config(store, tmp_path / "half", *more, "train.epochs=1"))
    assert first["epochs"] == 1
    train(config(store, tmp_path / "half", *more))
    assert tables(tmp_path / "half") == tables(tmp_path / "run")


def test_rounds_do_not_matter_in_memory(store, tmp_path):
    for rounds in (1, 4):
        train(config(store, tmp_path / str(rounds), f"embed.rounds={rounds}"))
    assert tables(tmp_path / "1") == tables(tmp_path / "4")


def test_frames_in_gpu_memory_change_no_number(store, tmp_path, monkeypatch):
    """The host stands for the GPU: partitions pass through page-locked memory all the same."""
    settings = config(store, tmp_path / "run", "embed.partitions=6", "train.eval_every=1")
    monkeypatch.setattr(job, "make_frames", lambda *shape, device=None: twin_frames(*shape[:2]))
    made = []
    monkeypatch.setattr(GpuFrames, "move", recorded(GpuFrames.move, made))
    train(settings)
    assert len(made) > 12
    assert tables(tmp_path / "run") == in_memory(settings)


def recorded(method, calls):
    def call(self, *arguments):
        calls.append(arguments)
        return method(self, *arguments)

    return call


@WITHOUT_GPU
def test_without_a_gpu_device_cuda_is_one_clear_error(store, tmp_path):
    with pytest.raises(RuntimeError, match=r"^device=cuda: .*; or set device=cpu"):
        train(config(store, tmp_path / "run", "device=cuda"))


def test_prefetching_changes_no_number(store, tmp_path):
    for prefetch in ("true", "false"):
        more = ("embed.partitions=6", f"storage.prefetch={prefetch}")
        train(config(store, tmp_path / prefetch, *more, "checkpoint.every_steps=7"))
    assert tables(tmp_path / "true") == tables(tmp_path / "false")


@pytest.mark.slow
def test_training_learns(store, tmp_path):
    summary = train(config(store, tmp_path, "embed.partitions=4", "train.epochs=30"))
    assert summary["test_mrr"] > 0.1  # seeds give 0.15 to 0.25; chance: about 0.025


class Crash(Exception):
    pass


def interrupted(settings, at, monkeypatch):
    """Runs until iteration ``at`` over all epochs, counted from 0, which is not trained."""
    whole, count = EmbedTrainer.train, iter(range(1000))

    def batch(self, *arguments):
        if next(count) == at:
            raise Crash
        return whole(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(EmbedTrainer, "train", batch)
        with pytest.raises(Crash):
            train(settings)


@pytest.mark.parametrize(("n", "at"), [(1, 20), (4, 1), (4, 23), (4, 50), (8, 37), (8, 60)])
def test_an_interrupted_run_continues_to_the_same_numbers(store, tmp_path, n, at, monkeypatch):
    more = (f"embed.partitions={n}", "checkpoint.every_steps=5")
    train(config(store, tmp_path / "whole", *more))
    settings = config(store, tmp_path / "cut", *more)
    interrupted(settings, at, monkeypatch)
    train(settings)
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


def losses(run_dir):
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [(r["epoch"], r["iteration"], r["loss"]) for r in lines if r["kind"] == "step"]


def test_a_finished_run_may_have_more_epochs(store, tmp_path):
    train(config(store, tmp_path / "whole", "embed.partitions=4", "train.epochs=3"))
    settings = config(store, tmp_path / "more", "embed.partitions=4", "train.epochs=1")
    train(settings)
    with pytest.raises(ValueError, match=r"holds a finished run; .* more than 1 continues it"):
        train(settings)
    train(config(store, tmp_path / "more", "embed.partitions=4", "train.epochs=3"))
    assert tables(tmp_path / "more") == tables(tmp_path / "whole")


def test_other_settings_do_not_continue_a_run(store, tmp_path):
    train(config(store, tmp_path, "train.epochs=1"))
    with pytest.raises(ValueError, match=r"embed.lr \(0.2 there, 0.3 now\)"):
        train(config(store, tmp_path, "embed.lr=0.3"))
    train(config(store, tmp_path, "embed.lr=0.3", "checkpoint.resume=never"))


def test_another_order_of_partitions_does_not_continue_a_run(store, tmp_path, monkeypatch):
    """Such as that of a release that searches in another way."""
    settings = config(store, tmp_path, "embed.partitions=6", "train.epochs=1")
    train(settings)
    made = make_order("random", 6, seed=5)
    monkeypatch.setattr("lsm.embed.job.make_order", lambda *_, **__: made)
    with pytest.raises(ValueError, match=r"embed\.order \(contents\) \(\w{16} there, \w{16} now\)"):
        train(settings)


def test_a_signal_ends_in_a_checkpoint(store, tmp_path, monkeypatch, kept_handlers):
    train(config(store, tmp_path / "whole", "embed.partitions=4"))
    settings = config(store, tmp_path / "cut", "embed.partitions=4")
    requests = iter([None] * 7 + ["SIGTERM"])
    with monkeypatch.context() as patched:
        patched.setattr(trainer.signals, "requested", lambda: next(requests))
        with pytest.raises(Stopped, match="after epoch 1, iteration 7; a checkpoint is in"):
            train(settings)
    assert EmbeddingRun.open(tmp_path / "cut").state.position.iteration == 8
    train(settings)
    assert tables(tmp_path / "cut") == tables(tmp_path / "whole")


def test_training_stops_when_validation_gets_no_better(store, tmp_path, monkeypatch):
    found = iter([0.3, 0.5, 0.4, 0.5, 0.6])
    whole = trainer.Evaluator.evaluate

    def evaluate(self, split, *arguments):
        ranking = whole(self, split, *arguments)
        return ranking if split == "test" else replace(ranking, mrr=next(found))

    monkeypatch.setattr(trainer.Evaluator, "evaluate", evaluate)
    stopping = ("train.epochs=9", "train.eval_every=1", "train.patience=2")
    summary = train(config(store, tmp_path, *stopping))
    assert summary["epochs"] == 4
    assert (summary["valid_mrr"], summary["best_epoch"], summary["kept_epoch"]) == (0.5, 2, 2)
    with pytest.raises(ValueError, match="holds a finished run"):
        train(config(store, tmp_path, *stopping))


def test_a_validation_reads_ahead_what_is_not_resident(store, tmp_path, monkeypatch):
    reads, swap, evaluate = [], Transfers.swap, trainer.Evaluator.evaluate
    evaluating = threading.Event()

    def recorded(self, memory, **options):
        if evaluating.is_set():
            is_ahead = threading.current_thread() is not threading.main_thread()
            reads.append((is_ahead, options.get("write_to"), options["read_from"]))
        return swap(self, memory, **options)

    def evaluated(self, split, blocks, *arguments):
        evaluating.set()
        passes = [list(blocks()), list(blocks())]
        evaluating.clear()
        firsts = [[(first, len(rows)) for first, rows in blocks] for blocks in passes]
        assert firsts[0] == firsts[1]
        assert sum(count for _, count in firsts[0]) == 240
        return evaluate(self, split, blocks, *arguments)

    monkeypatch.setattr(Transfers, "swap", recorded)
    monkeypatch.setattr(trainer.Evaluator, "evaluate", evaluated)
    train(config(store, tmp_path, "embed.partitions=8", "train.epochs=1", "train.eval_every=1"))
    assert len(reads) == 2 * 2 * 5  # validation and test, two passes, all but the resident three
    assert {(is_ahead, write_to) for is_ahead, write_to, _ in reads} == {(True, None)}
    assert len({read_from for _, _, read_from in reads}) == 5


def test_a_loss_that_is_not_finite_is_one_line(store, tmp_path):
    with pytest.raises(RuntimeError, match=r"^epoch 1, iter.*smaller embed.lr \(now 1e\+30\)"):
        train(config(store, tmp_path, "embed.lr=1e30"))


def test_blocks_of_a_run_are_all_rows_in_order(store, tmp_path):
    train(config(store, tmp_path, "embed.partitions=4"))
    run = EmbeddingRun.open(tmp_path)
    width = run.layout.width
    rows = np.frombuffer(tables(tmp_path)[0], np.float32).reshape(-1, width)
    for max_bytes in (1, 700, 1 << 20):
        expected = 0
        for first, block in run.blocks(max_bytes):
            assert first == expected
            assert block.dtype == torch.float32
            pages = 4 * width * 4096 // math.gcd(4 * width, 4096)  # that end with a row
            assert len(block) * 4 * width <= max(pages, max_bytes)
            np.testing.assert_array_equal(block, rows[first : first + len(block), : run.dim])
            expected += len(block)
        assert expected == run.num_entities == len(rows)
