"""Configurations, traces and small tools that the planner's tests share."""

from types import SimpleNamespace

import numpy as np

from reference.hashing import mix64
from reference.planner import ReferencePlanner, Source

# Every policy, spelled out: a list of the code under test would shrink with it.
POLICIES = (
    *("round_robin", "random", "lru", "clock", "sieve", "s3fifo", "lfu"),
    *("window", "static", "dynamic", "hybrid", "lookahead", "belady"),
)
ARRAYS = (
    *("ids", "source", "slot", "evict_line", "evict_slot", "evict_word"),
    *("insert_position", "insert_line", "spill_position", "spill_slot", "spill_word"),
    *("tag_slot", "tag_word"),
)
# Of plans that GPU code makes, too: it writes neither words nor tags.
MOVES = tuple(name for name in ARRAYS if not name.endswith("_word") and name != "tag_slot")


def config(policy, num_lines, ways, **fields):
    """The fields of PlannerConfig, without importing it."""
    defaults = {
        "window": 8,
        "update_period": 4,
        "near_fraction": 0.125,
        "victim_mode": "none",
        "victim_rows": 0,
        "seed": 0,
    }
    assert not fields.keys() - defaults.keys(), fields
    fields = {"policy": policy, "num_lines": num_lines, "ways": ways} | defaults | fields
    return SimpleNamespace(**fields)


def plans(planner, batches, window, rank_starts=None):
    """Yields every plan of the trace; before plan t the batches t .. t + window - 1 are pushed.
    rank_starts: of each batch, if there is more than one rank."""
    num_pushed = 0
    for t in range(len(batches)):
        while num_pushed < min(t + window, len(batches)):
            of_ranks = () if rank_starts is None else (rank_starts[num_pushed],)
            planner.push(batches[num_pushed], *of_ranks)
            num_pushed += 1
        yield planner.plan()


def assert_same_array(found, expected, where=""):
    """As numpy.testing has it, which takes ten times as long, for two arrays of integers."""
    if found.dtype != expected.dtype or not np.array_equal(found, expected):
        np.testing.assert_array_equal(found, expected, err_msg=where, strict=True)


def power_law_trace(num_batches, batch_size, num_nodes, exponent=3):
    """Lists of distinct nodes, low ids more often. Integers only, the same on every machine."""
    batches, counter = [], 0
    for _ in range(num_batches):
        batch = {}
        for _ in range(batch_size):
            node = num_nodes
            for _ in range(exponent):
                counter += 1
                node = node * (mix64(counter) >> 32) >> 32
            batch[node] = None
        batches.append(list(batch))
    return batches


def describe(plan):
    """A plan as text: per request its id, source letter (Static, Cache, Victim, Konstant, Miss) and
    slot, then ``>line`` if it is inserted or ``-`` if it is bypassed, and ``~slot`` if a bypassed
    row goes to the victim buffer. After ``|`` the evictions: ``line@slot``, or ``linex`` if the row
    is discarded. Moves must come in the order of the events within each set."""
    inserted = dict(zip(plan.insert_position, plan.insert_line, strict=True))
    spilled = dict(zip(plan.spill_position, plan.spill_slot, strict=True))
    words = []
    for position, (node, source, slot) in enumerate(
        zip(plan.ids, plan.source, plan.slot, strict=True)
    ):
        word = f"{node}{'SCVKM'[source]}{'' if slot < 0 else slot}"
        if position in inserted:
            word += f">{inserted[position]}"
        elif source in (Source.VICTIM, Source.STORAGE):
            word += f"-~{spilled[position]}" if position in spilled else "-"
        words.append(word)
    if len(plan.evict_line):
        words.append("|")
        for line, slot in zip(plan.evict_line, plan.evict_slot, strict=True):
            words.append(f"{line}x" if slot < 0 else f"{line}@{slot}")
    return " ".join(words)


def follow(policy, ways, trace, *, scores=None, static_ids=None, constant_ids=None, **fields):
    """Runs the trace in a cache of one set and compares every plan; returns the plans."""
    batches = [batch for batch, _ in trace]
    settings = config(policy, ways, ways, **fields)
    planner = ReferencePlanner(
        settings,
        scores=scores,
        static_ids=static_ids,
        constant_ids=constant_ids,
        trace=batches if policy == "belady" else None,
    )
    made = list(plans(planner, batches, settings.window))
    assert [describe(plan) for plan in made] == [expected for _, expected in trace]
    for plan in made:
        counters = plan.counters
        tiers = ("hits", "static_hits", "victim_hits", "constant_hits", "misses")
        assert counters["requests"] == len(plan.ids) == sum(counters[tier] for tier in tiers)
    return made


UNKNOWN = 2**64 - 1  # metadata word of a row whose next use is not known


def replay(plans, window, static_ids=(), constant_ids=()):
    """Moves ids as an executor moves rows: gathers before it writes, then evictions, insertions and
    spills. Every request must find its own row, and no place may be written twice in a plan. The
    word of a row in the victim buffer must name the iteration and the position it is served at,
    once that iteration has been in the window of an earlier plan."""
    lines, victims, words = {}, {}, {}
    tiers = {
        Source.STATIC: dict(enumerate(static_ids)),
        Source.CACHE: lines,
        Source.VICTIM: victims,
        Source.CONSTANT: dict(enumerate(constant_ids)),
    }
    for plan in plans:
        ids = plan.ids.tolist()
        served = zip(ids, plan.source.tolist(), plan.slot.tolist(), strict=True)
        for position, (node, source, slot) in enumerate(served):
            assert slot == -1 if source == Source.STORAGE else tiers[source][slot] == node
            if source == Source.VICTIM and (window > 1 or words[slot] != UNKNOWN):
                assert words[slot] >> 48 == plan.iteration % 2**16
                assert words[slot] % 2**40 == position
        for slot, word in zip(plan.tag_slot.tolist(), plan.tag_word.tolist(), strict=True):
            assert words[slot] == UNKNOWN
            words[slot] = word % 2**64
        evict = (plan.evict_line, plan.evict_slot, plan.evict_word)
        kept = [
            (line, slot, word)
            for line, slot, word in zip(*(array.tolist() for array in evict), strict=True)
            if slot >= 0
        ]
        spill_slots, insert_lines = plan.spill_slot.tolist(), plan.insert_line.tolist()
        written = [slot for _, slot, _ in kept] + spill_slots
        words.update({slot: word % 2**64 for _, slot, word in kept})
        spill_words = [word % 2**64 for word in plan.spill_word.tolist()]
        words.update(zip(spill_slots, spill_words, strict=True))
        assert len(set(written)) == len(written)
        assert len(set(insert_lines)) == len(insert_lines)
        assert set(plan.evict_line.tolist()) <= set(insert_lines) & lines.keys()
        victims.update({slot: lines[line] for line, slot, _ in kept})
        inserted = zip(insert_lines, plan.insert_position.tolist(), strict=True)
        lines.update({line: ids[position] for line, position in inserted})
        spilled = zip(spill_slots, plan.spill_position.tolist(), strict=True)
        victims.update({slot: ids[position] for slot, position in spilled})
