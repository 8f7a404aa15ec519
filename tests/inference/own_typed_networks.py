"""Classes that tests name as own models of graphs with types."""

from torch import nn
from torch_geometric.nn import GATConv, HeteroConv, SAGEConv


class Whole(nn.Module):
    """Convolutions of each relation, and a linear map of each node's own row, on a whole graph."""

    def __init__(self, in_channels, hidden_channels, out_channels, num_layers, metadata):
        super().__init__()
        self.num_layers, self.convs, self.own = num_layers, nn.ModuleList(), nn.ModuleList()
        widths, out = in_channels, hidden_channels
        for _ in range(num_layers):
            ends = {each: (widths[each[0]], widths[each[2]]) for each in metadata[1]}
            convs = {each: self.relation(dims, out) for each, dims in ends.items()}
            self.convs.append(HeteroConv(convs))
            self.own.append(nn.ModuleDict({of: nn.Linear(dim, out) for of, dim in widths.items()}))
            widths = dict.fromkeys(widths, out)
        self.output = nn.Linear(out, out_channels)

    def relation(self, widths, out):
        return SAGEConv(widths, out)

    def hidden(self, layer, x_dict, edge_index_dict):
        rows = self.convs[layer](x_dict, edge_index_dict)
        own = self.own[layer].items()
        return {of: (linear(x_dict[of]) + rows.get(of, 0)).relu() for of, linear in own}

    def forward(self, x_dict, edge_index_dict):
        for layer in range(self.num_layers):
            x_dict = self.hidden(layer, x_dict, edge_index_dict)
        return self.output(x_dict["paper"])


class WithSkips(Whole):
    def inference_per_layer(self, layer, x_dict, edge_index_dict, batch_size_dict):
        rows = self.hidden(layer, x_dict, edge_index_dict)
        if layer == self.num_layers - 1:
            return self.output(rows["paper"][: batch_size_dict["paper"]])
        return {of: rows[of][:size] for of, size in batch_size_dict.items()}


class Attention(WithSkips):
    def relation(self, widths, out):
        return GATConv(widths, out // 2, heads=2, add_self_loops=False)


class Uncut(Whole):
    def inference_per_layer(self, layer, x_dict, edge_index_dict, batch_size_dict):
        return self.hidden(layer, x_dict, edge_index_dict)


class Wider(WithSkips):
    def inference_per_layer(self, layer, x_dict, edge_index_dict, batch_size_dict):
        rows = super().inference_per_layer(layer, x_dict, edge_index_dict, batch_size_dict)
        return rows if layer == 0 else rows.repeat(1, 2)


class Failing(Whole):
    def inference_per_layer(self, layer, x_dict, edge_index_dict, batch_size_dict):
        return x_dict["nothing"]
