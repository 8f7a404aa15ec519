"""A run: its directory, records, options and set-up."""

__all__: list[str] = []
