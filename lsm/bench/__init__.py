"""Measurements that users run on their own machines: ``lsm bench NAME``."""
