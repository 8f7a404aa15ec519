"""Splits of the edges of a store, for link prediction."""
