"""The loss of a batch of edges and its gradients, on host and GPU."""
