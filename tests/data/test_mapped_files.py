"""A mapped file that is truncated while it is read is an error that names it, and no signal."""

import faulthandler
import signal
import subprocess

import numpy as np
import pytest
import torch

from lsm import native
from lsm.cache.scores import compute_score
from lsm.data import node_data
from lsm.data.convert.npy import convert_npy
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import LinkSplits
from lsm.loader.link_neighbor_loader import LinkNeighborLoader
from lsm.loader.neighbor_loader import NeighborLoader
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from support.store_files import python_command, random_graph, save_npy


@pytest.fixture
def store(tmp_path):
    arrays = random_graph(num_nodes=20_000, num_edges=200_000, dim=1)
    return convert_npy(save_npy(tmp_path / "graph", arrays), tmp_path / "out")


def truncate(path, keep):
    with open(path, "r+b") as file:
        file.truncate(keep)


@pytest.mark.parametrize("fanout", [5, -1])
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("keep", [0, 4096, 70_000])
@pytest.mark.parametrize("name", ["indptr", "indices"])
def test_a_topology_truncated_between_batches(store, name, keep, num_threads, fanout):
    sampler = NeighborSampler(store.topology(), [fanout, 5], num_threads=num_threads)
    seeds = torch.arange(0, 20_000, 40)
    sampler.sample(seeds, BatchName())
    path = store.path / f"topology/{name}.npy"
    whole = path.read_bytes()
    truncate(path, keep)
    with pytest.raises(OSError, match=rf"{name}\.npy") as raised:
        sampler.sample(seeds, BatchName(iteration=1))
    assert "truncated while in use" in str(raised.value)
    assert "restore the file or convert the data again" in str(raised.value)
    # What was read as zeros stays an error, also where the file is whole again.
    path.write_bytes(whole)
    if keep == 0:
        with pytest.raises(OSError, match="could not be read"):
            sampler.sample(seeds, BatchName(iteration=1))
    again = NeighborSampler(GraphStore.open(store.path).topology(), [fanout, 5])
    assert again.sample(seeds, BatchName(iteration=1)).n_id.numel() > len(seeds)


SAMPLE = """
import sys, threading, torch
from lsm.sampler.name import BatchName
from lsm.sampler.neighbor import NeighborSampler
from lsm.data.graph_store import GraphStore
from lsm.data.links.splits import LinkSplits
from lsm.loader.link_neighbor_loader import LinkNeighborLoader
sampler = NeighborSampler(GraphStore.open(sys.argv[1]).topology(), [10, 10])
errors = []
def run(thread):
    iteration = 0
    try:
        while True:
            sampler.sample(torch.arange(512), BatchName(epoch=thread, iteration=iteration))
            if (iteration := iteration + 1) == 5 and thread == 0:
                print("sampling", flush=True)
    except OSError as error:
        errors.append(str(error))
threads = [threading.Thread(target=run, args=(t,)) for t in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*errors, sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["indptr", "indices"])
def test_a_topology_truncated_under_threads_that_sample(store, name):
    process = subprocess.Popen(
        python_command(SAMPLE, store.path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "sampling\n"
        truncate(store.path / f"topology/{name}.npy", 4096)
        output, error = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, error
    assert output.count(f"topology/{name}.npy") == 3, output


def test_scores_of_a_truncated_topology(store):
    topology = store.topology()
    truncate(store.path / "topology/indices.npy", 4096)
    pool = native.ThreadPool(2)
    scores = torch.empty(20_000)
    train = store.split("train")
    with pytest.raises(OSError, match=r"indices\.npy"):
        native.reverse_pagerank(topology.indptr, topology.indices, train, 2, 0.85, scores, pool)
    with pytest.raises(ValueError, match=r"indices\.npy: truncated"):
        compute_score(GraphStore.open(store.path), "reverse_pagerank")
    truncate(store.path / "topology/indptr.npy", 4096)
    with pytest.raises(OSError, match=r"indptr\.npy"):
        native.in_degree(topology.indptr, scores, pool)


@pytest.mark.parametrize("most_in_memory", [0, 1 << 20])
def test_labels_truncated_during_an_epoch(store, monkeypatch, most_in_memory):
    """Few labels are in memory, where nothing happens to them."""
    monkeypatch.setattr(node_data, "_MOST_LABELS_IN_MEMORY", most_in_memory)
    expected = store.labels().clone()
    with NeighborLoader(store, [2], "train", 500) as loader:
        truncate(store.path / "labels.npy", 4096)
        if most_in_memory:
            batch = next(iter(loader))
            assert torch.equal(batch.y, expected[batch.n_id[:500]])
        else:
            with pytest.raises(OSError, match=r"labels\.npy: .*truncated|truncated.*labels\.npy"):
                next(iter(loader))


def test_links_truncated_during_an_epoch(store, tmp_path):
    splits = LinkSplits.make(store, tmp_path / "links")
    with LinkNeighborLoader(store, [2], "train", links=splits, batch_size=2000) as loader:
        truncate(splits.path / "split/train.npy", 4096)
        with pytest.raises(OSError, match=r"train\.npy: .*truncated|truncated.*train\.npy"):
            next(iter(loader))


FOREIGN = """
import faulthandler, mmap, os, sys
from lsm import native
if sys.argv[3] == "before": faulthandler.enable()
ours = native.MappedFile(sys.argv[1])
if sys.argv[3] == "after": faulthandler.enable()
another = native.MappedFile(sys.argv[1])
with open(sys.argv[2], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
    file.truncate(0)
if sys.argv[4] == "fault":
    memory[0]
else:
    os.kill(os.getpid(), 7)
print("still here")
"""


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["fault", "kill"])
@pytest.mark.parametrize("handler", ["none", "before", "after"])
def test_other_bus_errors_end_the_process_as_before(tmp_path, handler, cause):
    assert signal.SIGBUS == 7
    assert faulthandler.is_enabled()  # pytest does, so the tests above run with its handler
    paths = [tmp_path / "ours", tmp_path / "theirs"]
    for path in paths:
        path.write_bytes(bytes(8192))
    done = subprocess.run(
        python_command(FOREIGN, *paths, handler, cause),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == -signal.SIGBUS, done
    assert ("Fatal Python error: Bus error" in done.stderr) == (handler != "none")


def test_what_is_mapped_is_the_file_and_writing_does_not_change_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(np.arange(5000, dtype=np.uint8).tobytes())
    mapped = torch.frombuffer(native.MappedFile(str(path)), dtype=torch.uint8)
    assert mapped.numpy().tobytes() == path.read_bytes()
    mapped[:] = 7
    native.check_mapped(mapped)
    assert path.read_bytes() == np.arange(5000, dtype=np.uint8).tobytes()
    with pytest.raises(FileNotFoundError, match="absent"):
        native.MappedFile(str(tmp_path / "absent"))
