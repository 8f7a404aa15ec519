"""Pairs of nodes from .npy and text: every form gives the same ids, and bad ones are told apart."""

import gzip

import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import lsm
from lsm.data.links.pair_file import read_pairs

PAIRS = np.array([[3, 0, 39, 0, 3], [1, 9, 0, 9, 9]])


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """40 users without names, and 10 items that are named a to j."""
    data, folder = HeteroData(), tmp_path_factory.mktemp("pairs")
    data["user"].x, data["item"].x = torch.randn(40, 2), torch.randn(10, 2)
    data["user", "buys", "item"].edge_index = torch.tensor(PAIRS)
    data["item"].names = [*list("abcdefghi"), "j\tk"]
    store = lsm.GraphStore.from_pyg(data, folder / "g")
    return store.nodes("user"), store.nodes("item")


def text(separator, pairs=PAIRS):
    return "".join(f"{a}{separator}{b}\n" for a, b in pairs.T)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", text(" ")),
        ("p.tsv", text("\t")),
        ("p.csv", text(",")),
        ("p.csv", text(" , ")),
        ("p.txt", "\n" + text("   ").replace("\n", "\r\n\r\n")),
        ("p.txt", "3 b\n0 j\tk\n"),
    ],
)
def test_lines_of_ids(ends, tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    if "k" in content:
        with pytest.raises(ValueError, match="line 2: expected two ids or names, got 3"):
            read_pairs(path, ends, "--links")
        return
    assert read_pairs(path, ends, "--links").tolist() == PAIRS.tolist()
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(content.encode()))
    assert read_pairs(packed, ends, "--links").tolist() == PAIRS.tolist()


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint16", ">i8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("by_row", [False, True])
def test_arrays(ends, tmp_path, dtype, order, by_row):
    given = PAIRS.T if by_row else PAIRS
    np.save(tmp_path / "p.npy", np.array(given, dtype=dtype, order=order))
    found = read_pairs(tmp_path / "p.npy", ends, "--links")
    assert found.dtype == torch.int64
    assert found.tolist() == PAIRS.tolist()
    assert (
        read_pairs(torch.tensor(PAIRS.astype("int32")), ends, "--links").tolist() == found.tolist()
    )


def test_names(ends, tmp_path):
    (tmp_path / "p.csv").write_text('3,b\n0,"j\tk"\n')
    assert read_pairs(tmp_path / "p.csv", ends, "--links").tolist() == [[3, 0], [1, 9]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", "3 1\n\n40 1\n41 1\n", "line 3: 40 is no node of type user: .* 0 to 39"),
        ("p.txt", "3 10\n", "line 1: 10 is no node of type item: expected an id from 0 to 9"),
        ("p.txt", f"3 {10**30}\n", "line 1: an id that large is no node of type item"),
        ("p.txt", "3 a\n4 A\n5 zz\n", "line 2: 'A' is no node of type item; did you mean 'a'"),
        ("p.txt", "3 a\nbob a\n", "line 2: 'bob' is no id, and nodes of type user have no names"),
        ("p.txt", "3 1\n4\n", "line 2: expected two ids or names, got 1: '4'"),
        ("p.csv", "3,1\n4 1\n", "line 2: expected two ids or names, got 1"),
        ("p.txt", "-1 1\n", "line 1: '-1' is no id"),
        ("p.txt", "\n", "expected at least one pair, got none"),
        ("p.txt", b"3 \xff\n", "line 1: not UTF-8"),
        ("p.npy", np.zeros((2, 2), int), r"\[2, 2\] may be two pairs by rows or by columns"),
        ("p.npy", np.zeros((3, 4), int), r"expected pairs of ids, \[2, n\] or \[n, 2\]"),
        ("p.npy", np.zeros((2, 3)), "of integers, got float64"),
        ("p.npy", np.zeros((2, 0), int), "expected at least one pair, got none"),
        ("p.npy", np.array([[0, 1, 50], [0, 0, -1]]), "pair 2: 50 is no node of type user"),
        ("p.npy", np.array([[0, 1, 5], [0, 0, -1]]), "pair 2: -1 is no node of type item"),
        ("p.npy", b"nonsense", "--links: .*p.npy: not a .npy file"),
        (
            "p.npz",
            b"PK\3\4\0\0",
            r"p\.npz: expected a .npy file of pairs of ids, or lines",
        ),
    ],
)
def test_bad_pairs_are_told_in_a_line(ends, tmp_path, name, content, message):
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as caught:
        read_pairs(path, ends, "--links")
    assert str(caught.value).startswith(f"--links: {path}: ")
    assert "\n" not in str(caught.value)


def test_a_truncated_array_is_told(ends, tmp_path):
    np.save(tmp_path / "p.npy", np.zeros((2, 1000), int))
    content = (tmp_path / "p.npy").read_bytes()
    (tmp_path / "p.npy").write_bytes(content[:-800])
    with pytest.raises(ValueError, match=r"p\.npy: .*truncated"):
        read_pairs(tmp_path / "p.npy", ends, "--links")
    with pytest.raises(IsADirectoryError, match=r"--links: .* is a directory; expected a file of"):
        read_pairs(tmp_path, ends, "--links")
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_pairs(tmp_path / "other", ends, "--links")
