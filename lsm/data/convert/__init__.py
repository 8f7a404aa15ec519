"""Converts graphs of other formats to stores."""
