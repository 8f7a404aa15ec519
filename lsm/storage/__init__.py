"""Storage engines, the order and depth of reads, and measurements of disks."""
