"""Gathers of rows in GPU memory, with and without locks on lines."""

import pytest
import torch

from lsm import native
from support.gpus import ON_A_GPU

pytestmark = ON_A_GPU


@pytest.mark.parametrize("locks", ["none", "device", "system"])
@pytest.mark.parametrize("dim", [1, 4, 1030])
def test_gathers(locks, dim):
    source = torch.arange(50 * dim, dtype=torch.int32, device="cuda:0").view(50, dim)
    ids = torch.randint(50, (20_000,), generator=torch.Generator().manual_seed(dim)).to("cuda:0")
    out = torch.zeros(len(ids), dim, dtype=torch.int32, device="cuda:0")
    references = torch.zeros(50, dtype=torch.int32, device="cuda:0")
    stream = torch.cuda.current_stream().cuda_stream
    native.gather_on(source, ids, out, references, locks, 0, stream)
    assert torch.equal(out, source[ids])
    assert not references.any()


def test_a_gather_in_a_cuda_graph():
    """It neither waits nor allocates, so it can be captured, and replayed over other ids."""
    source = torch.arange(4096, dtype=torch.int32, device="cuda:0").view(64, 64)
    ids = torch.zeros(1000, dtype=torch.int64, device="cuda:0")
    out = torch.empty(1000, 64, dtype=torch.int32, device="cuda:0")
    native.gather_on(source, ids, out, None, "none", 0, 0)  # kernels are loaded at their first use
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        native.gather_on(source, ids, out, None, "none", 0, stream.cuda_stream)
    for seed in range(3):
        ids.copy_(torch.randint(64, (1000,), generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, source[ids])
