"""`lsm doctor`: finds the abilities of this machine by trying them."""

__all__: list[str] = []
