"""`lsm doctor`: what this machine can do, found by trying it."""

__all__: list[str] = []
