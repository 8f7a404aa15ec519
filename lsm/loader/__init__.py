"""Batches: neighbour sampling and feature reads in a pipeline ahead of training."""
