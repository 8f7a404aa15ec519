"""Faults of the disk under whole runs: the last checkpoint resumes to the same numbers, or damage
is told. Other stores, damaged states: one line."""

import errno
import os
import random
import shutil

import numpy as np
import pytest

from lsm import native
from lsm.data.synth import synthesize
from lsm.embed import open_run, run_state
from lsm.embed.evaluate import evaluate_run
from lsm.embed.run_state import STATE_NAME
from lsm.embed.table.reader import DamagedError
from lsm.embed.trainer import train
from lsm.storage.transfers import Transfers
from support.command import lsm
from support.engines import QUEUED_ENGINES
from support.triples import SIX_PARTITIONS, config, overrides, tables

SWAPS = 90
"""Fewer than a run of SIX_PARTITIONS makes."""


@pytest.fixture
def generator():
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    return random.Random(seed)


def at_swap(monkeypatch, number, action):
    """Calls ``action(transfers, whole, memory, options)`` for the swap with that number, from 0."""
    whole, count = Transfers.swap, iter(range(10**6))

    def swap(self, memory, **options):
        if next(count) == number:
            return action(self, whole, memory, options)
        return whole(self, memory, **options)

    monkeypatch.setattr(Transfers, "swap", swap)


@pytest.mark.parametrize("engine", [*QUEUED_ENGINES, "nvme"])
def test_after_an_error_of_the_disk_the_checkpoint_resumes(
    store, whole, tmp_path, monkeypatch, generator, engine
):
    settings = config(store, tmp_path / "run", *SIX_PARTITIONS, f"storage.engine={engine}")

    def fail(transfers, swap, memory, options):
        transfers.inject_fault(native.Fault.error, 0, errno.EIO)
        return swap(transfers, memory, **options)

    for _ in range(2):
        with monkeypatch.context() as patched:
            at_swap(patched, generator.randrange(SWAPS // 3), fail)
            with pytest.raises(OSError, match=r"(read|write) of \d+ bytes") as caught:
                train(settings)
            assert caught.value.errno == errno.EIO
            assert caught.value.filename == str(tmp_path / "run" / "partitions.bin")
    assert not (tmp_path / "run" / "result.json").exists()
    train(settings)
    assert tables(tmp_path / "run") == whole


class PowerCut(Exception):
    pass


def write_half(transfers, memory, options, keep_first):
    """The first or second half of what should be written, by the pages of the file."""
    content = memory.numpy().tobytes()
    half = len(content) // 8192 * 4096
    begin, end = (0, half) if keep_first else (half, len(content))
    with open(transfers.path, "r+b") as file:
        file.seek(options["write_to"] + begin)
        file.write(content[begin:end])


def test_after_a_torn_write_the_checkpoint_resumes(store, whole, tmp_path, monkeypatch, generator):
    """Half of a partition is written, then the machine ends: again and again."""
    settings = config(store, tmp_path / "run", *SIX_PARTITIONS, "embed.dim=8")

    def tear(transfers, swap, memory, options):
        if options.get("write_to") is not None:
            write_half(transfers, memory, options, generator.random() < 0.5)
        raise PowerCut

    cuts = 0
    for _ in range(4):
        with monkeypatch.context() as patched:
            at_swap(patched, generator.randrange(SWAPS // 2), tear)
            try:
                train(settings)
            except PowerCut:
                cuts += 1
                continue
            break
    assert cuts
    if not (tmp_path / "run" / "result.json").exists():
        train(settings)
    assert tables(tmp_path / "run") == whole


@pytest.mark.parametrize("trial", range(3))
def test_a_lost_write_is_never_trained_on(store, whole, tmp_path, monkeypatch, generator, trial):
    """The disk says that it wrote, and did not: the same numbers, or an error that says so."""
    settings = config(store, tmp_path / "run", *SIX_PARTITIONS)
    lost = []

    def lose(transfers, swap, memory, options):
        before = transfers.path.read_bytes()
        sums = swap(transfers, memory, **options)
        if options.get("write_to") is not None:
            begin = options["write_to"] + 4096 * (memory.nbytes // 8192)
            with open(transfers.path, "r+b") as file:
                file.seek(begin)
                file.write(before[begin : options["write_to"] + memory.nbytes])
            lost.append(begin)
        return sums

    def outcome(body):
        try:
            body()
        except DamagedError as error:
            return error.errno, error.filename
        return None

    told = (errno.EIO, str(tmp_path / "run" / "partitions.bin"))
    with monkeypatch.context() as patched:
        at_swap(patched, generator.randrange(6, SWAPS), lose)
        first = outcome(lambda: train(settings))
    assert first in (None, told)
    assert lost or first is None
    resumed = outcome(lambda: train(settings)) if first else None
    read = outcome(lambda: list(open_run(tmp_path / "run").blocks()))
    assert {resumed, read} <= {None, told}
    if resumed is None and read is None:
        assert tables(tmp_path / "run") == whole


def test_a_damaged_checkpoint_is_one_line(store, tmp_path, monkeypatch, capsys):
    settings = overrides(store, tmp_path, *SIX_PARTITIONS, "train.epochs=1")
    assert lsm(monkeypatch, "embed", "train", "base", *settings) == 0
    more = [*settings, "train.epochs=2"]
    state, (relations,) = tmp_path / STATE_NAME, tmp_path.glob("relations-*.bin")
    partitions = tmp_path / "partitions.bin"
    for path, damage in {
        state: lambda content: content[: len(content) // 2],
        relations: lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        partitions: lambda content: bytes(len(content)),
    }.items():
        content = path.read_bytes()
        path.write_bytes(damage(content))
        capsys.readouterr()
        for arguments in (["train", "base", *more], ["neighbors", tmp_path, "0", "--ids"]):
            if path == relations and arguments[0] == "neighbors":
                continue  # which needs none
            assert lsm(monkeypatch, "embed", *arguments) == 1
            error = capsys.readouterr().err.splitlines()[-1]
            assert error.startswith("error: ")
            assert str(path) in error
        path.write_bytes(content)
    os.truncate(partitions, partitions.stat().st_size - 4096)
    assert lsm(monkeypatch, "embed", "train", "base", *more) == 1
    assert f"{partitions}: expected" in capsys.readouterr().err.splitlines()[-1]


def test_no_flipped_bit_of_a_state_is_read_as_another_state(store, tmp_path):
    train(config(store, tmp_path, *SIX_PARTITIONS, "train.epochs=1"))
    state = tmp_path / STATE_NAME
    content = state.read_bytes()
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << at % 8
        state.write_bytes(damaged)
        with pytest.raises(ValueError, match=STATE_NAME):
            run_state.load_state(tmp_path)
    state.write_bytes(content)
    assert run_state.load_state(tmp_path).table.slots


@pytest.mark.parametrize(("split", "column"), [("train", 0), ("valid", 1), ("test", 2)])
def test_damaged_edges_name_their_file(store, tmp_path, split, column):
    """A relation -1 was that of the last row, and a known edge of no entity was none."""
    shutil.copytree(store, tmp_path / "store")
    train(config(tmp_path / "store", tmp_path / "run", "train.epochs=1"))
    path = tmp_path / "store" / f"edges/{split}.npy"
    edges = np.load(path)
    edges[5, column] = -1
    np.save(path, edges)
    message = rf"{split}\.npy: expected each (head|relation|tail) in \[0, \d+\), got -1; run `lsm"
    run = open_run(tmp_path / "run")
    with pytest.raises(ValueError, match=message):
        run.predict([1], [0], unknown_only=True)
    with pytest.raises(ValueError, match=message):
        evaluate_run(run.run, "test")
    with pytest.raises(ValueError, match=message):
        train(config(tmp_path / "store", tmp_path / "other", "train.epochs=1"))


def test_a_store_of_another_kind_is_one_line(store, tmp_path, monkeypatch, capsys):
    synthesize(tmp_path / "nodes", nodes=100, dim=4, classes=2, avg_degree=3, progress=False)
    train(config(store, tmp_path / "run", "train.epochs=1"))
    nodes = tmp_path / "nodes"
    for command in (
        ("train", "base", f"data.path={store}"),
        ("embed", "train", "base", f"data.path={nodes}"),
        ("embed", "eval", tmp_path / "run", f"data.path={nodes}"),
        ("embed", "neighbors", tmp_path / "run", "1", "--store", nodes),
        ("embed", "export", tmp_path / "run", "--out", tmp_path / "out", "--store", nodes),
    ):
        capsys.readouterr()
        assert lsm(monkeypatch, *command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        assert "expected a store of" in line
