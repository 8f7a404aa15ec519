"""Models of edges, each an operator and a comparator. ``models.py`` lists them."""
