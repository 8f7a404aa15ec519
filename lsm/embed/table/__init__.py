"""The table of embeddings: its partitions on disk, and those in memory."""
