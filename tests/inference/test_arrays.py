"""Files of rows that are written in any order, against numpy."""

import numpy as np
import pytest
import torch

from lsm.inference.arrays import ArrayFile


@pytest.mark.parametrize(("is_npy", "shape"), [(True, (3,)), (True, ()), (False, (3,))])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_rows_lie_at_their_ids(tmp_path, is_npy, shape, share):
    draw = np.random.default_rng(int(share * 10))
    expected = np.zeros((500, *shape), dtype=np.float32)
    file = ArrayFile(tmp_path / "rows", 500, shape, torch.float32, is_npy=is_npy)
    file.create()
    for _ in range(3):
        ids = np.flatnonzero(draw.random(500) < share)
        rows = draw.random((len(ids), *shape))
        file.write_at(torch.from_numpy(ids), torch.from_numpy(rows))
        expected[ids] = rows
        file.write(490, torch.from_numpy(rows[:5]))
        expected[490 : 490 + len(rows[:5])] = rows[:5]
    if is_npy:
        found = np.load(file.path)
    else:
        found = np.fromfile(file.path, dtype=np.float32, count=expected.size)
    assert np.array_equal(found.reshape(expected.shape), expected)


def test_rows_of_another_shape_are_refused(tmp_path):
    file = ArrayFile(tmp_path / "rows.npy", 10, (3,), torch.float32)
    file.create()
    with pytest.raises(ValueError, match=r"expected rows of shape \[3\], got \[4\]"):
        file.write_at(torch.tensor([1, 4]), torch.ones(2, 4))
    assert not np.load(file.path).any()
