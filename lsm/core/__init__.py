"""Shared by every room: units, progress, records, the device, ranges of settings."""

__all__: list[str] = []
