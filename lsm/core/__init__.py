"""What every room uses: units, progress, records, the device, ranges of settings."""

__all__: list[str] = []
