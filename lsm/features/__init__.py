"""Feature loaders: rows by node id, from memory, storage, a cache or a cache shared over ranks."""
