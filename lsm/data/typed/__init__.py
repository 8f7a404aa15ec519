"""Stores of graphs with several types of nodes and edges: their format and description."""
