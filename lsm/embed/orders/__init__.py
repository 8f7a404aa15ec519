"""Orders in which partitions enter the buffer, and buckets are trained."""
