"""Stores: a directory that holds a graph, its features and its labels (DESIGN section 8)."""
