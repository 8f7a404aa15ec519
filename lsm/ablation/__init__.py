"""Cache-policy studies: many caches over one trace, side by side."""

__all__: list[str] = []
