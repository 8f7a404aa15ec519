"""A fixed trace and the misses of every policy on it, at eight cache sizes."""

import numpy as np

from support.planner_traces import power_law_trace

NUM_NODES = 1000
WAYS = 8
WINDOW = 16
NUM_LINES = (8, 16, 32, 64, 128, 256, 512, 1024)
BATCHES = power_law_trace(num_batches=100, batch_size=64, num_nodes=NUM_NODES)
SCORES = np.arange(NUM_NODES, 0, -1, dtype=np.float32)  # low ids are requested more often

GOLDEN_MISSES = {
    "requests": 5469,
    "round_robin": [5236, 5012, 4675, 4125, 3181, 2011, 936, 695],
    "random": [5236, 5012, 4675, 4131, 3196, 1976, 920, 675],
    "lru": [5236, 5012, 4675, 4107, 3074, 1795, 823, 662],
    "clock": [5236, 5012, 4673, 4077, 3015, 1739, 819, 660],
    "sieve": [5236, 5012, 4673, 4054, 2925, 1641, 805, 658],
    "s3fifo": [5236, 5012, 4671, 4044, 2838, 1603, 780, 659],
    "lfu": [5236, 5012, 4670, 4030, 2820, 1572, 786, 654],
    "window": [5234, 4915, 4453, 3546, 2270, 1213, 709, 639],
    "static": [5236, 5012, 4672, 3959, 2621, 1472, 729, 642],
    "dynamic": [5236, 5012, 4671, 3992, 2672, 1377, 736, 646],
    "hybrid": [5236, 5012, 4671, 3916, 2524, 1363, 709, 639],
    "lookahead": [4679, 4125, 3477, 2723, 1856, 1096, 681, 632],
    "belady": [4679, 4125, 3477, 2723, 1855, 1080, 669, 631],
}
