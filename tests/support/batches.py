"""Batches through models of PyG."""


def output_on_seeds(model, batch):
    """The output of a model of PyG that trims layers itself."""
    return model(
        batch.x,
        batch.edge_index,
        num_sampled_nodes_per_hop=batch.num_sampled_nodes,
        num_sampled_edges_per_hop=batch.num_sampled_edges,
    )[: batch.batch_size]
