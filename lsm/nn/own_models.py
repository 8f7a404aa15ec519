"""Networks of a class that the user names, called with PyG's arguments.

The class gets its sizes by PyG's names, such as ``in_channels``, those that its signature takes,
and ``model.args``. ``forward`` gets a batch, or the tensors that its parameters name (see
``_OF_ONE_TYPE`` and ``_OF_TYPES``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch_geometric.nn.models.basic_gnn import BasicGNN
from torch_geometric.nn.module_dict import ModuleDict

from lsm.core.imported import import_named
from lsm.graph.types import EDGE, EdgeType, TypedMap
from lsm.loader.batch import Batch
from lsm.nn.construct import call_own, construct
from lsm.nn.embeddings import no_outputs
from lsm.nn.options import ModelOptions
from lsm.nn.templates import remove_templates
from lsm.nn.typed_models import TypedInputs, embedding

Offered = Mapping[str, Callable[[Batch], Any]]


def _weights(batch: Batch) -> TypedMap[EdgeType, Tensor]:
    """The weights of edges by type: the store's times those of the sampler."""
    stored, drawn = batch.edge_values("edge_weight"), batch.edge_weight_dict
    both = {each: stored[each] * drawn[each] for each in stored if each in drawn}
    return TypedMap({**stored, **drawn, **both})


_OF_ONE_TYPE: Offered = {
    "edge_weight": lambda batch: _weights(batch).get(EDGE),
    "edge_attr": lambda batch: batch.edge_values("edge_attr").get(EDGE),
    "n_id": lambda batch: batch.n_id,
    "batch_size": lambda batch: batch.batch_size,
    "num_sampled_nodes_per_hop": lambda batch: batch.num_sampled_nodes,
    "num_sampled_edges_per_hop": lambda batch: batch.num_sampled_edges,
}
_OF_TYPES: Offered = {
    "edge_weight_dict": _weights,
    "edge_attr_dict": lambda batch: batch.edge_values("edge_attr"),
    "n_id_dict": lambda batch: batch.n_id_dict,
    "batch_size": lambda batch: batch.batch_size,
    "num_sampled_nodes_dict": lambda batch: batch.num_sampled_nodes_dict,
    "num_sampled_edges_dict": lambda batch: batch.num_sampled_edges_dict,
}


class OwnModel(nn.Module):
    """A module of the user on sampled batches.

    name: of its class, for errors. inputs: the sizes of a graph with types; None: one type. width:
    of the rows of types without features.
    """

    def __init__(
        self,
        name: str,
        network: nn.Module,
        out_dim: int,
        inputs: TypedInputs | None = None,
        width: int = 0,
    ) -> None:
        super().__init__()
        self.network = network
        self.name, self.out_dim = name, out_dim
        self.input_type = None if inputs is None else inputs.input_type
        self.embeddings = ModuleDict(_tables(inputs, width))
        self._offered = _OF_ONE_TYPE if inputs is None else _OF_TYPES
        self._takes_batch, self._names = _parameters(name, network, self._offered)
        remove_templates()

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the seeds: [batch_size, out_dim] float32.

        A batch without seeds gives [0, out_dim] that still depends on every parameter with dense
        gradients, as DDP expects of each rank. Raises ValueError for outputs of another shape,
        RuntimeError for an error of the module, with its place.
        """
        if batch.batch_size == 0:
            return no_outputs(self, self.out_dim)
        positional, named = self._arguments(batch)
        found = call_own(f"model.name: {self.name}", self.network, *positional, **named)
        return self._of_seeds(found, batch.batch_size).float()

    def _arguments(self, batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._takes_batch:
            return (batch.to_pyg(),), {}
        named = {name: self._offered[name](batch) for name in self._names}
        if self.input_type is None:
            return (batch.x.float(), batch.edge_index), named
        ids, x = batch.n_id_dict, {name: rows.float() for name, rows in batch.x_dict.items()}
        x |= {name: table(ids[name]) for name, table in self.embeddings.items()}
        return (x, batch.edge_index_dict), named

    def _of_seeds(self, found: Any, num_seeds: int) -> Tensor:
        """The seeds' rows of the module's outputs, which come first."""
        if isinstance(found, Mapping) and self.input_type is not None:
            found = found.get(self.input_type)
        if isinstance(found, Tensor) and found.dim() == 1 and self.out_dim == 1:
            found = found.unsqueeze(1)
        fits = isinstance(found, Tensor) and found.dim() == 2 and found.size(1) == self.out_dim
        if not fits or len(found) < num_seeds:
            of_type = (
                "" if self.input_type is None else f" for type {self.input_type}, or a dict with it"
            )
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"model.name: {self.name}: expected outputs [n, {self.out_dim}]{of_type}, the "
                f"{num_seeds} seeds first, got {got}; take the width from the argument out_channels"
            )
        return found[:num_seeds]


def build_own_model(
    options: ModelOptions, in_dim: int | TypedInputs, out_dim: int, num_layers: int
) -> OwnModel:
    """The network of the class that ``options`` name. ``in_dim``: width of the features, or the
    sizes of a graph with types. ``num_layers``: number of hops. Raises ValueError if the class
    cannot be imported, does not take its arguments, or is no module that a batch can be given
    to."""
    key, name, width = "model.name", options.name, options.hidden_dim
    kind = import_named(key, name)
    sizes: dict[str, Any] = {
        "out_channels": out_dim,
        "hidden_channels": width,
        "num_layers": num_layers,
        "dropout": options.dropout,
    }
    inputs = in_dim if isinstance(in_dim, TypedInputs) else None
    if inputs is None:
        sizes["in_channels"] = in_dim
    else:
        dims = inputs.feature_dims.items()
        sizes["in_channels"] = {of: width if dim is None else dim for of, dim in dims}
        sizes["metadata"] = list(inputs.num_nodes), list(inputs.edge_dims)
    network = construct((key, "model.args"), name, kind, sizes, options.args)
    if any(is_lazy(each) for each in network.parameters()):
        raise ValueError(
            f"{key}: {name}: expected widths of its own, got lazy parameters; take the width of "
            "the features from the argument in_channels, in place of -1"
        )
    return OwnModel(name, network, out_dim, inputs, width)


def _tables(inputs: TypedInputs | None, width: int) -> dict[str, nn.Embedding]:
    """An embedding for each type without features."""
    if inputs is None:
        return {}
    dims, counts = inputs.feature_dims, inputs.num_nodes
    return {name: embedding(counts[name], width) for name in dims if dims[name] is None}


def _parameters(name: str, network: nn.Module, offered: Offered) -> tuple[bool, list[str]]:
    """True if ``forward`` takes a whole batch; and its parameters among ``offered``.

    The first parameter decides: ``batch`` is a whole batch. Otherwise the first two, of any name,
    are the rows and the edges. Raises ValueError for others that are required.
    """
    taken = list(inspect.signature(network.forward).parameters.values())
    if taken and taken[0].name == "batch":
        return True, []
    names = []
    for each in taken[2:]:
        if each.name in offered:
            names.append(each.name)
        elif each.default is each.empty and each.kind not in (
            each.VAR_POSITIONAL,
            each.VAR_KEYWORD,
        ):
            known = ", ".join(offered)
            raise ValueError(
                f"model.name: {name}: forward() takes {each.name}, expected among {known}; or take "
                "one parameter named batch"
            )
    if len(taken) < 2:
        raise ValueError(
            f"model.name: {name}: forward() takes {len(taken)} parameter(s), expected the rows of "
            "nodes and the edges, or one parameter named batch"
        )
    return False, [each for each in names if _is_of_use(each, network)]


def _is_of_use(parameter: str, network: nn.Module) -> bool:
    """False for values that a network of PyG's family takes and then cannot use."""
    if not isinstance(network, BasicGNN):
        return True
    if parameter.startswith("num_sampled_"):  # jumping knowledge joins layers of one length
        return not hasattr(network, "jk")
    if parameter == "edge_attr" and getattr(network.convs[0], "edge_dim", None) is None:
        return False
    return bool(getattr(network, f"supports_{parameter}", True))
