"""Partitions read a block ahead: every byte verified, whatever fails told, nothing left behind."""

import errno
import threading

import numpy as np
import pytest
import torch

from lsm import native
from lsm.embed import open_run, run_state
from lsm.embed.evaluate import evaluate_run
from lsm.embed.table import files as partition_files
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.reader import DamagedError, StoredSlot, read_partitions
from lsm.embed.use.export import export
from lsm.storage.transfers import TransferOptions, Transfers
from support.command import lsm
from support.embed_runs import make_run
from support.engines import QUEUED_ENGINES
from support.mounts import make_read_only

STARTS = [0, 700, 1500, 2100]
WIDTH = 6
PAGE, MASK = 4096, 2**64 - 1


def mix(x):
    """The finaliser of MurmurHash3."""
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & MASK
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def checksum(content):
    """As kernels/core/checksum.h describes it: eight lanes, page by page, each with its number."""
    total = 0
    for page in range(len(content) // PAGE):
        words = np.frombuffer(content[page * PAGE : (page + 1) * PAGE], np.uint64).tolist()
        lanes = [mix(page + lane + 1) for lane in range(8)]
        for at, word in enumerate(words):
            state = lanes[at % 8] ^ word
            lanes[at % 8] = ((state << 29 | state >> 35) & MASK) * 0x9E3779B97F4A7C15 & MASK
        sum_of_page = PAGE
        for lane in lanes:
            sum_of_page = mix(sum_of_page ^ lane)
        total = (total + sum_of_page) & MASK
    return total


@pytest.fixture
def table(tmp_path):
    """(path, layout, rows of all entities, sources)."""
    layout = PartitionLayout.of(STARTS, WIDTH)
    generator = np.random.default_rng(0)
    content = generator.standard_normal(layout.file_bytes // 4).astype(np.float32)
    path = tmp_path / partition_files.FILE_NAME
    path.write_bytes(content.tobytes())
    slots = [0, 1, 0]
    size = layout.frame_bytes // 4
    frames = [content[layout.slot_offset(p, s) // 4 :][:size] for p, s in enumerate(slots)]
    rows = [frame.reshape(-1, WIDTH)[: layout.num_rows(p)] for p, frame in enumerate(frames)]
    sources = [(p, StoredSlot(slots[p], checksum(frames[p].tobytes()))) for p in range(3)]
    return path, layout, rows, sources


def opened(path, engine="posix", **options):
    return Transfers(path, TransferOptions(engine=engine, **options), read_only=True)


@pytest.mark.parametrize("engine", [*QUEUED_ENGINES, "nvme"])
@pytest.mark.parametrize("max_bytes", [1, 20_000, 1 << 20])
def test_blocks_are_all_rows_in_order(table, engine, max_bytes):
    path, layout, rows, sources = table
    sources[1] = (1, lambda: torch.from_numpy(rows[1].copy()))  # a partition in memory
    with opened(path, engine, chunk_bytes=8192) as transfers:
        blocks = list(read_partitions(transfers, layout, sources, "", max_bytes))
    firsts = [first for first, _ in blocks]
    assert firsts == np.cumsum([0, *(len(block) for _, block in blocks)])[:-1].tolist()
    np.testing.assert_array_equal(torch.cat([block for _, block in blocks]), np.concatenate(rows))
    assert len(blocks) > 3 or max_bytes == 1 << 20


@pytest.mark.parametrize("place", ["first", "middle", "last", "padding"])
def test_damage_is_told_before_the_last_block(table, place):
    path, layout, rows, sources = table
    begin = layout.slot_offset(1, 1)
    offset = {"first": 0, "middle": 9000, "padding": layout.frame_bytes - 1}
    offset["last"] = layout.num_rows(1) * layout.row_bytes - 1
    flip(path, begin + offset[place])
    found = 0
    with opened(path) as transfers:
        blocks = read_partitions(transfers, layout, sources, "do this", 12_288)
        message = r"partition 1 was .*lost or changed data; do this"
        with pytest.raises(DamagedError, match=message):  # noqa: PT012
            for _, block in blocks:
                found += len(block)
    assert len(rows[0]) < found < len(rows[0]) + len(rows[1])


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))


def test_one_block_is_read_ahead(table, monkeypatch):
    path, layout, _, sources = table
    begun, whole = [], Transfers.swap

    def swap(self, memory, **options):
        begun.append(options["read_from"])
        return whole(self, memory, **options)

    monkeypatch.setattr(Transfers, "swap", swap)
    with opened(path) as transfers:
        blocks = read_partitions(transfers, layout, sources, "", 1 << 20)
        for number in range(3):
            next(blocks)
            for thread in threading.enumerate():
                if thread.name == "lsm-partitions":
                    thread.join(20)
            assert len(begun) == min(number + 2, 3)


@pytest.mark.parametrize("engine", QUEUED_ENGINES)
def test_a_failing_disk_is_an_error(table, engine):
    path, layout, _, sources = table
    with opened(path, engine, timeout_secs=0.3) as transfers:
        transfers.inject_fault(native.Fault.error, 1, errno.EIO)
        with pytest.raises(OSError, match="read of") as caught:
            list(read_partitions(transfers, layout, sources, ""))
        assert caught.value.errno == errno.EIO
    with opened(path, engine, timeout_secs=0.3) as transfers:
        transfers.inject_fault(native.Fault.stall, 1)
        with pytest.raises(TimeoutError, match=r"not moved in 0.3 s"):
            list(read_partitions(transfers, layout, sources, ""))


def test_the_file_is_not_closed_under_a_read(table, monkeypatch):
    path, layout, _, sources = table
    going, may_go, whole = threading.Event(), threading.Event(), Transfers.swap

    def swap(self, memory, **options):
        if options["read_from"] == layout.slot_offset(1, 1):
            going.set()
            assert may_go.wait(20)
        return whole(self, memory, **options)

    monkeypatch.setattr(Transfers, "swap", swap)
    with opened(path) as transfers:
        blocks = read_partitions(transfers, layout, sources, "", 1 << 20)
        next(blocks)
        assert going.wait(20)
        threading.Timer(0.1, may_go.set).start()
        blocks.close()
        assert may_go.is_set()


@pytest.fixture
def run(store, tmp_path):
    rows = np.random.default_rng(0).standard_normal((240, 8)).astype(np.float32)
    relations = np.ones((6, 8), np.float32)
    return make_run(tmp_path / "run", store, [0, 80, 160, 240], rows, relations)


READS = {
    "eval": lambda run, out: evaluate_run(open_run(run).run, "test"),
    "export": lambda run, out: export(open_run(run), out, "tsv"),
    "neighbors": lambda run, out: open_run(run).neighbors([0], 3),
    "entities": lambda run, out: open_run(run).entities([85]),
    "blocks": lambda run, out: list(open_run(run).blocks()),
}


@pytest.mark.parametrize("what", READS)
def test_a_damaged_table_is_told_by_everything_that_reads_it(run, tmp_path, what):
    READS[what](run, tmp_path / "before")
    layout = PartitionLayout.of([0, 80, 160, 240], 16)
    flip(run / "partitions.bin", layout.slot_offset(1, 0) + 3)  # the other slot: not read
    READS[what](run, tmp_path / "unharmed")
    flip(run / "partitions.bin", layout.slot_offset(1, 1) + 500)
    with pytest.raises(OSError, match="partition 1 was read with checksum") as caught:
        READS[what](run, tmp_path / "out")
    assert caught.value.filename == str(run / "partitions.bin")
    assert not list(tmp_path.glob("out/*"))


def test_damage_is_one_line(run, monkeypatch, capsys):
    layout = PartitionLayout.of([0, 80, 160, 240], 16)
    flip(run / "partitions.bin", layout.slot_offset(2, 0))
    for arguments in (["eval", run], ["neighbors", run, "0", "--ids"]):
        assert lsm(monkeypatch, "embed", *arguments) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ")
        assert "partition 2 was read with checksum" in line
        assert "train again with checkpoint.resume=never" in line
        assert str(run / "partitions.bin") in line


def test_a_row_costs_one_pass_over_its_partition(run, monkeypatch):
    read = []
    whole = Transfers.swap

    def swap(self, memory, **options):
        read.append(options["read_from"])
        return whole(self, memory, **options)

    embeddings = open_run(run)
    layout = embeddings.run.layout
    monkeypatch.setattr(Transfers, "swap", swap)
    embeddings.entities([85, 159, 86])
    embeddings.entities([80])
    assert read == [layout.slot_offset(1, 1)]
    embeddings.neighbors([0, 90], 2)
    assert len(read) == 5  # partition 0, then all three
    embeddings.entities(range(240))
    assert len(read) == 5


def test_a_slot_that_training_wrote_to_since(run):
    """Not damage: the run has a later checkpoint."""
    opened_before = open_run(run)
    state = run_state.load_state(run)
    later = state.position.model_copy(update={"epoch": 1})
    run_state.save_state(run, state.model_copy(update={"position": later}), torch.ones(6, 16))
    layout = opened_before.run.layout
    flip(run / "partitions.bin", layout.slot_offset(1, 1))
    with pytest.raises(RuntimeError, match="the run was trained on meanwhile"):
        opened_before.entities([85])


def test_a_run_may_be_on_a_disk_that_is_read_only(disk, store):
    rows = np.random.default_rng(0).standard_normal((240, 8)).astype(np.float32)
    path = make_run(disk / "run", store, [0, 120, 240], rows, np.ones((6, 8), np.float32))
    make_read_only(disk)
    np.testing.assert_array_equal(open_run(path).entities(range(240)), rows)
    assert evaluate_run(open_run(path).run, "test")["test_mrr"] > 0
