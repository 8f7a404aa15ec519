"""`lsm doctor`: what this machine can do, found by trying it."""
