"""Gathers of GPUs, with and without locks on lines: here their twin on the host."""

import pytest
import torch

from lsm import native


@pytest.mark.parametrize("locks", ["none", "device", "system"])
@pytest.mark.parametrize("dim", [1, 3, 4, 1024, 1030])
def test_rows_and_references(locks, dim):
    source = torch.arange(50 * dim, dtype=torch.int32).view(50, dim)
    ids = torch.randint(50, (200,), generator=torch.Generator().manual_seed(dim))
    out = torch.zeros(200, dim, dtype=torch.int32)
    references = torch.zeros(50, dtype=torch.int32)
    native.gather_on(source, ids, out, references, locks, native.TWIN, 0)
    assert torch.equal(out, source[ids])
    assert not references.any()


def test_bad_input():
    source, out = torch.zeros(5, 2), torch.zeros(1, 2)
    ids = torch.tensor([5])
    with pytest.raises(ValueError, match=r"ids in \[0, 5\), got 5"):
        native.gather_on(source, ids, out, None, "none", native.TWIN, 0)
    with pytest.raises(ValueError, match="locks: expected none, device or system, got 'all'"):
        native.gather_on(source, ids, out, None, "all", native.TWIN, 0)
    with pytest.raises(ValueError, match="references: expected 5 elements of 4 bytes"):
        native.gather_on(source, ids, out, None, "system", native.TWIN, 0)
