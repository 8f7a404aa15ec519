"""Training: the job, its trainer, budgets, checkpoints and metrics."""

__all__: list[str] = []
