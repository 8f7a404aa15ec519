"""Plans for the cache's executors: rows, tiers in NumPy, random plans and targets."""

import numpy as np

from lsm import native
from lsm.storage.engine import Storage

NUM_ROWS, LINES, SLOTS = 60, 16, 7
STATIC_IDS, CONSTANT_IDS = [59, 3, 4], [20, 7]
STATIC, CACHE, VICTIM, CONSTANT, STORAGE = range(5)
FIELDS = (
    "source",
    "slot",
    "evict_line",
    "evict_slot",
    "insert_position",
    "insert_line",
    "spill_position",
    "spill_slot",
)


class Tiers:
    """The executor's tiers, in NumPy: a plan's steps, one after the other, on whole arrays."""

    def __init__(self, rows: np.ndarray) -> None:
        row_bytes = rows.shape[1]
        self.lines = np.zeros((LINES, row_bytes), np.uint8)
        self.victims = np.zeros((SLOTS, row_bytes), np.uint8)
        self.static, self.constant = rows[STATIC_IDS], rows[CONSTANT_IDS]

    def replay(self, plan: dict[str, np.ndarray], out: np.ndarray) -> None:
        tiers = {STATIC: self.static, CACHE: self.lines, VICTIM: self.victims}
        tiers[CONSTANT] = self.constant
        for position, (source, slot) in enumerate(zip(plan["source"], plan["slot"], strict=True)):
            if source != STORAGE:
                out[position] = tiers[source][slot]
        kept = plan["evict_slot"] >= 0
        self.victims[plan["evict_slot"][kept]] = self.lines[plan["evict_line"][kept]]
        self.victims[plan["spill_slot"]] = out[plan["spill_position"]]
        self.lines[plan["insert_line"]] = out[plan["insert_position"]]


def open_rows(directory, row_bytes, engine="posix"):
    rows = np.random.default_rng(row_bytes).integers(0, 256, (NUM_ROWS, row_bytes), dtype=np.uint8)
    path = directory / f"rows.{row_bytes}.bin"
    path.write_bytes(rows.tobytes() + bytes(-rows.nbytes % 4096))
    storage = Storage([path], num_rows=NUM_ROWS, row_bytes=row_bytes, engine=engine)
    return rows, storage


def make_plan(**fields) -> dict[str, np.ndarray]:
    plan = {name: [] for name in FIELDS} | fields
    return {
        name: np.array(values, np.uint8 if name == "source" else np.int64)
        for name, values in plan.items()
    }


def as_native(plan: dict[str, np.ndarray], iteration: int) -> native.Plan:
    """The plan for an executor, with words by which rows that enter the victim buffer wait for the
    next iteration."""
    waits = native.pack_metadata(iteration + 1, 0, 0)
    words = {
        "evict_word": np.full(len(plan["evict_slot"]), waits),
        "spill_word": np.full(len(plan["spill_slot"]), waits),
    }
    moves = words | plan
    return native.Plan(iteration=iteration, source=moves.pop("source"), moves=moves)


def random_plan(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Any plan that writes no line and no slot twice, sensible or not."""
    n = int(rng.integers(0, 30))
    source = rng.integers(0, 5, n).astype(np.uint8)
    bound = np.array([len(STATIC_IDS), LINES, SLOTS, len(CONSTANT_IDS), 1])[source]
    slot = np.where(source == STORAGE, -1, rng.integers(0, 2**40, n) % bound)
    slots = rng.permutation(SLOTS)
    num_evicted, num_spilled = int(rng.integers(0, 5)), min(n, int(rng.integers(0, 3)))
    evict_slot = slots[:num_evicted].copy()
    evict_slot[rng.random(num_evicted) < 0.3] = -1
    num_inserted = int(rng.integers(0, min(n, LINES) + 1))
    return make_plan(
        source=source,
        slot=slot,
        evict_line=rng.permutation(LINES)[:num_evicted],
        evict_slot=evict_slot,
        insert_position=rng.permutation(n)[:num_inserted],
        insert_line=rng.permutation(LINES)[:num_inserted],
        spill_position=rng.permutation(n)[:num_spilled],
        spill_slot=slots[5 : 5 + num_spilled],
    )


def random_targets(rng: np.random.Generator, num_rows: int, row_bytes: int) -> list[tuple]:
    """Lists of any rows of a batch, some for places in order, some for places in disorder."""
    targets = []
    for _ in range(int(rng.integers(0, 4))):
        count = int(rng.integers(0, 40)) if num_rows else 0
        room = count + int(rng.integers(0, 4))
        places = rng.permutation(room)[: count if rng.random() < 0.7 else 0].astype(np.int32)
        row_of = rng.integers(0, max(1, num_rows), count).astype(np.int32)
        targets.append((row_of, np.full((room, row_bytes), 77, np.uint8), places))
    return targets
