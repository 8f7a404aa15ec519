"""Embeddings of nodes and relations, trained partition by partition."""
