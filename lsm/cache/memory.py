"""Memory of a cache: its tiers, and the metadata of its planner."""

from __future__ import annotations

from lsm import native
from lsm.cache.options import CacheOptions
from lsm.cache.tier_sizes import useful_window
from lsm.core.memory import Shape, Terms
from lsm.core.option_types import settled

WINDOW_ID_BYTES = 24
"""Most memory of an id of the window in a planner on the host."""
_GPU_WINDOW_ID_BYTES = 50  # in a planner on a GPU
_GPU_SLOT_BYTES = 33  # of a victim slot, in a planner on a GPU
SLOT_BYTES = 64
"""Most memory of a victim slot: its metadata word, and its places in the planner's order."""
_SCORE_BYTES = 4
_COMPUTED_SCORE_BYTES = 24  # while a score is computed during training
_SCORE_SHARE = 16  # a score is computed if that takes at most this fraction of the budget
_MIN_ROWS = 1024  # a smaller cache is of no use


def line_bytes(options: CacheOptions, *, on_gpu: bool) -> int:
    """Metadata of a line in the planner, with its share of the set's, rounded up. With
    ``cache.ways=auto``, that of the smaller sets, which have more. Precondition: ``options`` name a
    policy and a mode of the victim buffer."""
    config = native.PlannerConfig()
    config.policy, config.ways = options.policy, options.lines_per_set(in_gpu_memory=True)
    config.victim_mode = options.victim.mode
    return -(-native.planner_set_bytes(config, on_gpu) // config.ways)


def chosen_score(options: CacheOptions, shape: Shape, budget: int) -> str:
    """``cache.score``; none without a cache, or if auto stands for one whose computation would take
    too much memory."""
    computed = _COMPUTED_SCORE_BYTES * shape.num_nodes + shape.union_bytes
    fits = computed <= budget // _SCORE_SHARE
    is_none = options.policy == "none" or (options.score == "auto" and not fits)
    return "none" if is_none else options.score


def score_bytes(score: str, shape: Shape) -> int:
    """The score of each node, if there is one."""
    return 0 if score == "none" else _SCORE_BYTES * shape.num_nodes


def is_useful(num_bytes: int, shape: Shape) -> bool:
    """True if a cache of ``num_bytes`` of rows is large enough to be of use."""
    return num_bytes >= min(_MIN_ROWS, shape.num_nodes) * shape.row_bytes


def prefetch_rows(options: CacheOptions, row_bytes: int) -> int:
    """Rows of the GPU's buffer for rows that are prefetched from the victim buffer."""
    victim = options.victim
    if victim.mode == "none" or victim.prefetch == 0:
        return 0
    return min(settled(victim.bytes), settled(options.bytes) // 8) // row_bytes


def terms(options: CacheOptions, shape: Shape) -> Terms:
    """The tiers of ``options`` without ``auto``, with the planner's metadata of their rows."""
    constant, static, victim = options.constant.bytes, options.static.bytes, options.victim
    num_bytes = 0 if victim.mode == "none" else settled(victim.bytes)
    victims = with_slots(num_bytes, shape.row_bytes)
    host = {"victim buffer": victims, "hot rows": constant}
    if shape.on_gpu:
        return Terms(host, _on_gpu(options, shape))
    each = line_bytes(options, on_gpu=False)
    lines = with_lines(settled(options.bytes), each, shape)
    return Terms({"cache": lines} | host | {"hot rows": constant + static})


def _on_gpu(options: CacheOptions, shape: Shape) -> dict[str, int]:
    lines, row = settled(options.bytes), shape.row_bytes
    needs = {
        "the cache (cache.bytes)": lines,
        "static rows (cache.static.bytes)": options.static.bytes,
        "prefetched rows": prefetch_rows(options, row) * row,
    }
    if options.planner == "device":
        # The window's ids, whose number is not known yet, come on top.
        metadata = lines // row * line_bytes(options, on_gpu=True)
        if options.victim.mode != "none":
            metadata += settled(options.victim.bytes) // row * _GPU_SLOT_BYTES
        needs["the planner (cache.planner)"] = metadata + score_bytes(options.score, shape)
    return needs


def gpu_window_bytes(options: CacheOptions, shape: Shape) -> int:
    """GPU memory of the window's ids."""
    return options.window * shape.batch.nodes * _GPU_WINDOW_ID_BYTES


def explicit_bytes(options: CacheOptions, shape: Shape) -> int:
    """Host memory of the sizes in ``options`` that are not ``auto``."""
    if options.policy == "none":
        return options.constant.bytes
    row, total = shape.row_bytes, options.constant.bytes
    if not shape.on_gpu:
        total += with_slots(options.static.bytes, row)
        total += with_slots(options.bytes, row) if options.bytes != "auto" else 0
    if options.victim.mode not in ("auto", "none") and options.victim.bytes != "auto":
        total += with_slots(options.victim.bytes, row)
    return total


def wanted_window(options: CacheOptions, shape: Shape) -> int:
    """Iterations of the window that ``options`` want."""
    return max(1, min(useful_window(options), shape.iterations))


def most_bytes(shape: Shape) -> int:
    """Bytes of a cache whose sets, which fill unevenly, hold every row."""
    return (shape.features_bytes // shape.row_bytes * 3 // 2 + 64) * shape.row_bytes


def with_lines(num_bytes: int, line_bytes: int, shape: Shape) -> int:
    """``num_bytes`` of cached rows plus the metadata of their lines. A graph of few nodes uses
    fewer."""
    num_bytes = min(num_bytes, 2 * most_bytes(shape))
    return num_bytes + num_bytes // shape.row_bytes * line_bytes


def with_slots(num_bytes: int, row_bytes: int) -> int:
    """``num_bytes`` of rows in the victim buffer plus the metadata of their slots."""
    return num_bytes + num_bytes // row_bytes * SLOT_BYTES
