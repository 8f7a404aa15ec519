"""The configuration: its schema, files and overrides."""
