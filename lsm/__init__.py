"""LSM-GNN: train graph neural networks on graphs whose features do not fit in memory."""

__version__ = "0.1.0"
