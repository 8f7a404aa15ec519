"""Exchange of feature rows between the ranks that share a cache."""
