"""Places that take the numbers of a run: TensorBoard, CSV, wandb, MLflow."""
