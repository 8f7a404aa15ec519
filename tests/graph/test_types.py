"""One space of ids over types, against a list of every node with its type."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lsm.graph import EdgeTypes, NodeSpace, TypedMap
from lsm.graph.types import EDGE, NODE

COUNTS = st.dictionaries(st.text(min_size=1, max_size=3), st.integers(0, 9), min_size=1, max_size=5)


def every_node(counts):
    """(type, id in the type) of each id of the space."""
    return [(name, i) for name, count in counts.items() for i in range(count)]


@given(counts=COUNTS)
def test_an_id_of_the_space_is_a_place_in_the_list_of_nodes(counts):
    space, nodes = NodeSpace(counts), every_node(counts)
    assert space.num_nodes == len(nodes)
    assert space.types == tuple(counts)
    for name, count in counts.items():
        of_type = space.to_global(name, torch.arange(count)).tolist()
        assert [nodes[i] for i in of_type] == [(name, i) for i in range(count)]


@given(counts=COUNTS, data=st.data())
def test_split_gives_each_type_its_ids_and_their_places(counts, data):
    space, nodes = NodeSpace(counts), every_node(counts)
    ids = data.draw(st.lists(st.integers(0, len(nodes) - 1), max_size=30) if nodes else st.just([]))
    parts = space.split(torch.tensor(ids, dtype=torch.int64))
    assert list(parts) == list(counts)
    for name, (of_type, positions) in parts.items():
        expected = [place for place, i in enumerate(ids) if nodes[i][0] == name]
        places = list(range(len(ids))) if positions is None else positions.tolist()
        assert places == expected
        assert of_type.tolist() == [nodes[ids[place]][1] for place in expected]


@given(counts=COUNTS, ids=st.lists(st.integers(-3, 12)), data=st.data())
def test_ids_outside_a_type_are_found(counts, ids, data):
    name = data.draw(st.sampled_from(list(counts)))
    found = NodeSpace(counts).outside(name, torch.tensor(ids, dtype=torch.int64))
    assert found.tolist() == [i for i, each in enumerate(ids) if each not in range(counts[name])]


def test_one_type_moves_no_ids():
    """Not even a copy: the path of a graph without types is as it was."""
    space, ids = NodeSpace.of_one(10), torch.tensor([3, 1, 9])
    assert space.to_global(NODE, ids) is ids
    assert space.split(ids).only.ids is ids
    assert space.split(ids).only.positions is None


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, "at least one"),
        ({"paper": -1}, "node type 'paper': expected a name and a count, got -1"),
        ({"": 3}, "node type ''"),
        ({"paper": 2**62, "author": 2**62}, "nodes in all"),
    ],
)
def test_impossible_spaces_are_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        NodeSpace(counts)


def test_an_unknown_type_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="expected one of paper, author, got 'papers'"):
        NodeSpace({"paper": 3, "author": 2}).to_global("papers", torch.tensor([0]))


@given(st.dictionaries(st.text(max_size=3), st.integers(), max_size=4))
def test_a_typed_map_is_a_dict_and_one_type_stands_for_its_value(values):
    typed = TypedMap(values)
    assert typed == values
    assert typed.apply(str) == {name: str(value) for name, value in values.items()}
    if len(values) == 1:
        assert typed.only == next(iter(values.values()))
    else:
        with pytest.raises(ValueError, match=f"expected one, got {len(values)}"):
            typed.only  # noqa: B018


def test_edge_types_join_node_types_that_exist():
    nodes = NodeSpace({"paper": 3, "author": 2})
    writes, cites = ("author", "writes", "paper"), ("paper", "cites", "paper")
    types = EdgeTypes([writes, cites], nodes)
    assert types == (writes, cites)
    assert EdgeTypes.of_one(NodeSpace.of_one(4)) == (EDGE,)
    with pytest.raises(ValueError, match=r"\(venue, has, paper\): venue is no node type"):
        EdgeTypes([("venue", "has", "paper")], nodes)
    with pytest.raises(ValueError, match=r"\(paper, cites, paper\): is there twice"):
        EdgeTypes([cites, cites], nodes)
