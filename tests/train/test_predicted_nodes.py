"""The nodes that `lsm predict` computes, as files name them."""

import pytest
import torch
from torch_geometric.data import Data

import lsm
from lsm.train.predicted_nodes import predicted_nodes


def test_names_of_nodes_have_any_character_but_line_ends(tmp_path):
    """Also those at which str.splitlines() ends a line."""
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    data.names = ["a\u2028b", " c\x85d ", "e\x0bf"]
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    names = tmp_path / "some.txt"
    names.write_text(" c\x85d \r\na\u2028b\n\ne\x0bf", encoding="utf-8", newline="")
    assert predicted_nodes(names, store, None).tolist() == [1, 0, 2]


def test_an_unknown_name_of_a_node_comes_with_its_file(tmp_path):
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    data.names = ["a", "b", "c"]
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    names = tmp_path / "some.txt"
    names.write_text("c\na\n", encoding="utf-8-sig")
    assert predicted_nodes(names, store, None).tolist() == [2, 0]
    names.write_text("c\nd\n")
    with pytest.raises(ValueError, match=r"^--nodes: .*some\.txt: 'd': expected one of the names"):
        predicted_nodes(names, store, None)
    names.write_bytes(b"c\n\xe9\n")
    with pytest.raises(ValueError, match=r"^--nodes: .*some\.txt: line 2: expected text in UTF-8"):
        predicted_nodes(names, store, None)


def test_a_number_that_no_tensor_holds_is_told_as_it_is(tmp_path):
    data = Data(x=torch.ones(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))
    store = lsm.GraphStore.from_pyg(data, tmp_path / "g")
    ids = tmp_path / "some.txt"
    ids.write_text(f"1\n{2**63 - 1}\n")  # no node of the store, which is told where rows are read
    assert predicted_nodes(ids, store, None).tolist() == [1, 2**63 - 1]
    ids.write_text(f"1\n{2**63}\n")
    with pytest.raises(ValueError, match=rf"^--nodes: expected ids from 0 to 2, got {2**63} in "):
        predicted_nodes(ids, store, None)
