"""Stores of triples: their format, writing, reading, checking and generating."""
