"""The parts of one rank of an embedding run, built from the checked configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lsm import native
from lsm.data.triples.store import TripleStore
from lsm.distributed import collectives
from lsm.distributed.collectives import World
from lsm.embed import run_state
from lsm.embed.adagrad import initialise
from lsm.embed.batches import StepBatches
from lsm.embed.config import VALIDATION, EmbedConfig, fingerprint
from lsm.embed.edge_trainer import EdgeTrainer
from lsm.embed.memory import check_frames
from lsm.embed.orders.itinerary import Itinerary
from lsm.embed.orders.order import make_order
from lsm.embed.run_state import KeptTables, RunState
from lsm.embed.schedule import Schedule
from lsm.embed.store import contents, identity, open_store
from lsm.embed.table import drive as partition_drive
from lsm.embed.table import files as partition_files
from lsm.embed.table.buffer import PartitionBuffer
from lsm.embed.table.files import PartitionFiles
from lsm.embed.table.frames import make_frames
from lsm.embed.table.layout import PartitionLayout
from lsm.embed.table.slots import SlotAccess, SlotBoard, Slots
from lsm.run.directory import finished_run
from lsm.run.fingerprint import check_settings, contents_of
from lsm.run.position import Position
from lsm.run.torch_setup import set_up_device
from lsm.storage.transfers import Transfers

logger = logging.getLogger(__name__)

BOARD_NAME = "partitions.board"


@dataclass(frozen=True)
class EmbedJob:
    """The parts of an embedding run, on one rank."""

    config: EmbedConfig
    """The configuration, with the model that ``embed.model=auto`` chose."""
    world: World
    device: torch.device
    """The device that trains."""
    run_dir: Path
    """The same on every rank."""
    store: TripleStore
    schedule: Schedule
    keeps_best: bool
    """True if the best embeddings are kept in addition to the current ones."""
    itinerary: Itinerary
    layout: PartitionLayout
    files: PartitionFiles
    slots: Slots
    buffer: PartitionBuffer
    relations: Tensor | None
    """[relation rows, width] float32 on the device that trains; the same on every rank."""
    edges: EdgeTrainer
    batches: StepBatches
    position: Position
    """The position from which training starts."""
    best: KeptTables | None
    """The best tables, as the checkpoint names them."""
    is_new: bool
    """True if there is no checkpoint yet."""
    settings: dict[str, Any]
    """The settings that a checkpoint shares with the run that continues it."""


@contextmanager
def open_job(config: EmbedConfig, world: World, run_dir: Path) -> Iterator[EmbedJob]:
    """Opens the store and the partitions (new, or those of the last checkpoint), and closes them at
    the end. ``run_dir``: the same on every rank, locked by rank 0. Raises ValueError, RuntimeError
    or OSError if the store cannot be trained on."""
    if config.storage.transport != "emulated" and world.size > 1:
        raise ValueError(
            f"storage.transport: {world.size} ranks would share {config.storage.device}, and a "
            "controller belongs to one process; start one rank, or use the kernel's driver "
            "(storage.engine=io_uring)"
        )
    threads, precision = config.train.num_threads, config.train.precision
    device = set_up_device(config.device, world, threads, precision)
    if world.local_size != world.size:
        raise ValueError(
            f"world size: lsm embed runs on one machine, and {world.local_size} of {world.size} "
            "ranks are on this one"
        )
    store = open_store(config)
    chosen = config.embed.for_graph(store.num_relations)
    config = config.model_copy(update={"embed": chosen})
    options = config.embed
    order = make_order(
        options.order, options.partitions, options.buffer, world.size, seed=config.train.seed
    )
    layout = PartitionLayout.of(store.partition_starts(options.partitions).tolist(), options.width)
    schedule = Schedule.of(config, store, order)
    itinerary = Itinerary(order, world.rank, config.train.seed, schedule.rounds)
    check_frames(layout, itinerary.num_frames, device)
    settings = fingerprint(config, world.size, identity(store))
    settings["train.batch_size"] = schedule.batch_size
    settings |= contents(store) | contents_of("embed.order", order.digest)
    state = find_state(config, run_dir, settings) if world.is_main else None
    state = collectives.broadcast_object(state, world)
    had_slots = state.table.num_slots if state else 2
    had_best = state is not None and state.best is not None
    keeps_best = config.train.select == "best" and (had_best or bool(schedule.eval_every))
    position = state.position if state else Position()
    if keeps_best and not had_best:
        # An earlier validation whose embeddings were not kept is no measure for those to keep.
        position = position.model_copy(
            update={"best_epoch": -1, "best_score": -1.0, "worse_evaluations": 0}
        )
    layout = replace(layout, num_slots=max(had_slots, 3 if keeps_best else 2))
    with _open_partitions(config, layout, state, world, run_dir) as (transfers, board):
        files = PartitionFiles(transfers, layout, board, config.dist.timeout_secs)
        slots = Slots(
            state.table.slots if state else [1] * layout.partitions,
            state.best.slots if state and state.best else None,
            layout.num_slots,
        )
        buffer = PartitionBuffer(files, slots, make_frames(layout, itinerary.num_frames, device))
        if state is None:
            relations = _new_table(config, store, layout, buffer, world)
        else:
            relations = run_state.load_relations(run_dir, state.relations, layout.width)
        relations = None if relations is None else relations.to(device)
        collectives.barrier(world)  # now every partition exists
        yield EmbedJob(
            config=config,
            world=world,
            device=device,
            run_dir=run_dir,
            store=store,
            schedule=schedule,
            keeps_best=keeps_best,
            itinerary=itinerary,
            layout=layout,
            files=files,
            slots=slots,
            buffer=buffer,
            relations=relations,
            edges=EdgeTrainer(buffer.rows, relations, options, partition_rows=layout.frame_rows),
            batches=StepBatches(
                store.buckets("train", layout.partitions),
                layout,
                store.meta.columns,
                schedule.batch_size,
                config.train.seed,
                device,
            ),
            position=position,
            best=state.best if state else None,
            is_new=state is None,
            settings=settings,
        )


def find_state(config: EmbedConfig, run_dir: Path, settings: dict[str, Any]) -> RunState | None:
    """The state that the run continues from; None to start afresh. Raises ValueError for a state of
    other settings, and for a finished run without epochs left."""
    result = run_dir / "result.json"
    if config.checkpoint.resume == "never":
        result.unlink(missing_ok=True)
        return None
    try:
        state = run_state.load_state(run_dir)
    except FileNotFoundError:
        return None
    saved = {"embed.shift_scores": False} | state.settings  # the first checkpoints lack it
    check_settings(run_dir / run_state.STATE_NAME, saved, settings, VALIDATION)
    done = state.position.epoch
    if result.exists():
        if state.position.stopped_early or done >= config.train.epochs:
            raise finished_run(run_dir, state.position)
        result.unlink()
    logger.info(
        "continuing from %s (epoch %d, iteration %d)",
        run_dir / run_state.STATE_NAME,
        done + 1,
        state.position.iteration,
    )
    return state


@contextmanager
def _open_partitions(
    config: EmbedConfig,
    layout: PartitionLayout,
    state: RunState | None,
    world: World,
    run_dir: Path,
) -> Iterator[tuple[Transfers, SlotBoard]]:
    """The file or drive of partitions, and the board of their slots. Rank 0 creates or checks the
    shared files."""
    storage, path = config.storage, run_dir / partition_files.FILE_NAME
    if world.is_main and storage.device is None:
        if state is None:
            run_state.remove_run(run_dir)
            partition_files.create(path, layout)
        else:
            partition_drive.require_file(path)
            partition_files.check(path, replace(layout, num_slots=state.table.num_slots))
            partition_files.grow(path, layout)
    board_path = run_dir / BOARD_NAME if world.size > 1 else None
    if world.is_main and board_path is not None:
        board_path.write_bytes(bytes(SlotBoard.num_bytes(layout.partitions, layout.num_slots)))
    collectives.barrier(world)
    board = SlotBoard(layout.partitions, board_path, layout.num_slots)
    if state is not None and world.is_main:
        for named in (state.table, state.kept):
            for partition, slot in enumerate(named.slots):
                board.post(SlotAccess(partition, slot, 0), named.checksums[partition])
    with Transfers(path, storage) as transfers:
        if world.is_main and storage.device is not None:
            if state is None:
                partition_drive.claim(transfers, layout, run_dir, storage.erase)
                run_state.remove_run(run_dir)
            else:
                had = replace(layout, num_slots=state.table.num_slots)
                partition_drive.check(transfers, had, run_dir)
                partition_drive.grow(transfers, layout, run_dir)
        collectives.barrier(world)
        yield transfers, board


def _new_table(
    config: EmbedConfig,
    store: TripleStore,
    layout: PartitionLayout,
    buffer: PartitionBuffer,
    world: World,
) -> Tensor | None:
    """Writes the initial partitions, each rank its share; returns the relations' rows."""
    options, seed = config.embed, config.train.seed

    def fill(rows: Tensor, key: int) -> None:
        initialise(options, rows, native.batch_key(seed, key, 0, 0))

    for partition in range(layout.partitions):
        mine = partition % world.size == world.rank
        buffer.write_new(partition, partial(fill, key=partition) if mine else None)
    if not options.has_relations:
        return None
    relations = torch.empty(options.relation_rows(store.num_relations), options.width)
    fill(relations, layout.partitions)
    return relations
