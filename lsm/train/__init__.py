"""Training: the job, its trainer, budgets, checkpoints and metrics."""
