"""NVMe devices as the kernel describes them, and what writes features to their namespaces."""
