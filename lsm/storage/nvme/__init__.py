"""NVMe drives as the kernel describes them, and the loading of features onto their namespaces."""
