"""Equal ids are found by native code, by torch, and by a comparison of all pairs."""

import pytest
import torch

from lsm.links.pairs import equal_pairs, equal_pairs_by_torch, in_sorted, mask_equal


@pytest.mark.parametrize("find", [equal_pairs, equal_pairs_by_torch])
@pytest.mark.parametrize(("num_columns", "num_wanted"), [(50, 60), (0, 5), (5, 0)])
def test_exactly_the_equal_pairs_are_found(find, num_columns, num_wanted):
    generator = torch.Generator().manual_seed(4)
    columns = torch.randint(12, (num_columns,), generator=generator)
    wanted = torch.randint(16, (num_wanted,), generator=generator)  # not all among the columns
    rows, places = find(columns, wanted)
    assert torch.equal(rows, rows.sort().values)
    found = torch.zeros(num_wanted, num_columns)
    found.index_put_((rows, places), torch.ones(len(rows)), accumulate=True)
    assert torch.equal(found, (columns[None] == wanted[:, None]).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_of_equal_ids_are_masked(dtype):
    ids, wanted = torch.tensor([5, 7, 5, 9]), torch.tensor([5, 6, 9])
    scores = torch.zeros(3, 4, dtype=dtype)
    mask_equal(scores, ids, wanted)
    assert torch.equal(scores == -torch.inf, ids == wanted[:, None])


@pytest.mark.parametrize("num_ordered", [0, 1, 30])
@pytest.mark.parametrize("num_values", [0, 1, 200])
def test_values_in_a_list_are_found(num_ordered, num_values):
    ordered = torch.randint(-20, 20, (num_ordered,)).sort().values
    values = torch.randint(-25, 25, (num_values,))
    known = set(ordered.tolist())
    assert in_sorted(ordered, values).tolist() == [each in known for each in values.tolist()]
