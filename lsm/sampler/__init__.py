"""Neighbour sampling on the host and on GPUs."""
