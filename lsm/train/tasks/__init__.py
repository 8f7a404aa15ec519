"""Tasks of training: their seeds, losses and metrics."""

__all__: list[str] = []
