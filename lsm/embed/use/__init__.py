"""A finished run in use: rows, scores, predictions, neighbours, exports."""
