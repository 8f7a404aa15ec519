"""Request lists of several ranks, and features with any bits."""

import torch

NUM_NODES = 500


def features(dim, dtype):
    generator = torch.Generator().manual_seed(dim)
    words = torch.randint(0, 256, (NUM_NODES, dim * dtype.itemsize), generator=generator)
    return words.to(torch.uint8).view(dtype)  # any bits, NaNs too


def lists(kind, size, seed):
    """Request lists of ``size`` ranks; ids may repeat in the last kind."""
    generator = torch.Generator().manual_seed(seed)

    def some(count):
        return torch.randperm(NUM_NODES, generator=generator)[:count]

    if kind == "random":
        counts = torch.randint(0, NUM_NODES, (size,), generator=generator).tolist()
        return [some(count) for count in counts]
    if kind == "same":
        return [some(NUM_NODES)] * size
    if kind == "empty":
        return [some(0)] * size
    if kind == "one rank asks":
        return [some(40 if rank == size - 1 else 0) for rank in range(size)]
    if kind == "one rank owns":  # under stride
        return [some(NUM_NODES) // size * size for _ in range(size)]
    raise AssertionError(kind)


KINDS = ("random", "same", "empty", "one rank asks", "one rank owns")
