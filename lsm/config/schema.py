"""The configuration tree: one class per section, every field with its meaning and its checks.

Defaults live here, so an installed package needs no file; ``configs/base.yaml`` shows them all with
comments. Reading files and overrides is in ``lsm.config.load``.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from lsm.core.limits import DEEPEST_QUEUE, MOST_THREADS
from lsm.core.option_types import (
    AutoBytes,
    AutoPositive,
    Bytes,
    Fanouts,
    NonNegative,
    Positive,
    ReadBytes,
    Seconds,
    Seed,
    Threads,
)
from lsm.core.section import Section
from lsm.nn.options import ModelOptions
from lsm.sampler.options import SamplerOptions, TopologyOptions


class RunConfig(Section):
    dir: Annotated[str, Field(min_length=1)] | None = None
    """Directory for everything the run writes: metrics, checkpoints, the trained model. One run at
    a time may use it. null: runs/CONFIG/STORE, by the names of both, so that the same command finds
    its interrupted run; a store outside stores/ adds a hash of its path."""


def default_run_dir(config_name: str, store: str | None) -> str:
    """The directory for run.dir=null: named after the configuration and the store. A store outside
    stores/ adds a hash of its path, so that two stores of one name get two directories."""
    path = Path(store or ".").absolute()
    known = path.parent == Path("stores").absolute()
    suffix = "" if known else "-" + hashlib.sha256(bytes(path)).hexdigest()[:8]
    return str(Path("runs", config_name, path.name + suffix))


class DataConfig(Section):
    path: str | None = None
    """Store directory, as written by `lsm data convert` or `lsm data synth`. Required."""
    topology: Literal["auto", "mmap", "memory"] = "auto"
    """Where the graph structure and the labels live: mapped from the store on demand, or read into
    memory. auto: memory where they take at most a quarter of memory.bytes, else mmap."""


class MemoryConfig(Section):
    bytes: AutoBytes = "auto"
    """Host memory of each rank: of the process itself, the topology in memory, the window, staging,
    batches and their gradients, the cache, its victim buffer, or the features. Pages of mapped
    files do not count. auto: the process, and half of the machine's free memory or 85% of that of
    the control group, whichever is less, divided by the ranks of the machine; or the sum of the
    other keys, if that is more and is free."""


class StorageConfig(Section):
    engine: Literal["auto", "memory", "mmap", "posix", "io_uring", "nvme", "gds"] = "auto"
    """How features are read. auto: memory, where they fit in memory.bytes and cache.policy is auto
    or none; else io_uring where it works, else posix (see `lsm doctor`); gds: into GPU memory by
    cuFile, where it is installed."""
    transport: Literal["emulated", "sysfs", "libnvm"] = "emulated"
    """nvme: how controllers are reached. emulated: a thread plays one over the store's files."""
    devices: list[str] = Field([])
    """sysfs, libnvm: the namespaces that `lsm data load-nvme` wrote, in that order: 0000:01:00.0 or
    /dev/libnvm0; with @2 at the end, namespace 2 of it. Each rank of a machine needs its own
    drives."""
    command_timeout_secs: Seconds = 10.0
    """nvme: longest wait for one command, in seconds, before it is an error."""
    submit_from: Literal["host", "gpu"] = "host"
    """nvme: who submits commands and takes completions. gpu: kernels of the GPU that trains; rows
    still land in host memory."""
    submit_blocks: Positive | None = None
    """submit_from=gpu: most thread blocks of such a kernel. null: as many as 30% of its SMs."""
    queue_depth: Annotated[int, Field(ge=1, le=DEEPEST_QUEUE)] = 128
    """Reads in flight per thread (io_uring, nvme)."""
    num_threads: Threads | None = None
    """Threads that read (io_uring: rings; nvme: queues). null: 16 for posix, 1 for those two."""
    profile: str = "auto"
    """What the device was measured to do (`lsm bench storage STORE --profile`); the keys below that
    are auto follow from it. auto: the store's profile.json; if there is none of this device, the
    run measures it in about a second and keeps it there; or a path; or none."""
    target_share: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Share of the device's peak IOPS to reach: so many reads are kept outstanding."""
    max_read_bytes: ReadBytes = "auto"
    """Largest single read; adjacent rows are merged up to this size. auto: where the cost of
    starting a read is small against its bytes, 32 to 128 KiB; else 32 KiB."""
    max_gap_bytes: ReadBytes = "auto"
    """Bytes nobody asked for between two rows, up to which both are read at once. auto: where they
    cost less than another read; without a profile, or over a cache, 0."""
    merge_iterations: AutoPositive = "auto"
    """Iterations whose reads are planned together; at most half of sampler.prefetch is of use.
    auto: half of those in flight, where longer reads cost less than more reads; without a profile
    1."""
    direct: Literal["auto", "on", "off"] = "auto"
    """O_DIRECT. auto: used where the file system takes it; on: an error where it does not."""
    staging: Literal["auto", "gather", "copy"] = "auto"
    """How rows get from page-locked memory to a GPU that has a cache. gather: the kernel that
    gathers a batch reads them over PCIe; copy: the copy engines move runs of them; auto: both are
    tried on the first batches, and again every 1000, and the faster is taken. Rows are the same."""
    timeout_secs: Seconds = 60.0
    """Longest wait for one batch of rows, in seconds, before it is an error."""


class VictimConfig(Section):
    mode: Literal["auto", "none", "queues", "pool"] = "auto"
    """Buffer for rows that leave the cache. queues: rows needed again within the window, as many
    for each of its iterations; pool: the rows needed soonest, then, of rows the window does not
    show, those with the highest score (cache.score: none: those requested last). auto: pool where
    cache.policy is auto and storage is read, else none."""
    bytes: AutoBytes = "auto"
    """Memory of the victim buffer (queues: of all queues together), where there is one. auto: as
    much as the cache, or with one in GPU memory all that memory.bytes leaves for rows."""
    prefetch: Annotated[int, Field(ge=0, le=65_535)] = 4
    """Iterations whose rows a thread copies from the victim buffer while training runs, before they
    are due. 0: none. Fewer where memory.bytes has no room for their batches."""


class ConstantConfig(Section):
    bytes: Bytes = 0
    """Host memory for the rows with the highest scores, for good. 0: none."""


class StaticConfig(Section):
    bytes: Bytes = 0
    """Memory beside the cache, on the device that trains, for the rows with the highest scores, for
    good. 0: none."""


class CacheConfig(Section):
    policy: Literal[
        "auto",
        "none",
        "round_robin",
        "random",
        "lru",
        "clock",
        "sieve",
        "s3fifo",
        "lfu",
        "window",
        "static",
        "dynamic",
        "hybrid",
        "lookahead",
    ] = "auto"
    """Which rows stay in memory while training. none: every row is read from storage; lookahead:
    those needed soonest; auto: none where all features are in memory, else lookahead; the others
    are for comparison (`lsm ablate`)."""
    bytes: AutoBytes = "auto"
    """Memory of the cache, per rank. auto: what memory.bytes, or the GPU's free memory, leaves for
    it."""
    ways: Positive = 32
    """Lines per set: how many rows compete for a place."""
    window: Annotated[int, Field(ge=1, le=65_535)] = 256
    """Iterations sampled ahead, so that it is known what they need. Their graphs are held in
    memory, without features; fewer where memory.bytes is too small, or an epoch is shorter.
    Policies that do not look ahead ignore it, without a victim buffer."""
    update_period: Positive = 4
    """dynamic, hybrid: iterations between two passes over the window."""
    near_fraction: Annotated[float, Field(ge=0, le=1)] = 0.125
    """hybrid: part of the window within which a row counts as needed soon."""
    victim: VictimConfig = VictimConfig()
    """Rows on their way out."""
    constant: ConstantConfig = ConstantConfig()
    """The hottest rows, in host memory."""
    static: StaticConfig = StaticConfig()
    """The hottest rows, in a partition of their own."""
    planner: Literal["auto", "host", "device"] = "auto"
    """What decides about the cache's sets when a GPU trains. auto: both make the first plans, and
    the faster goes on. Plans are the same."""
    score: Literal["auto", "none", "in_degree", "reverse_pagerank", "presample"] = "auto"
    """How hot a node is expected to be, for static, hybrid and lookahead, and to choose constant
    and static rows. Taken from the store; computed and stored if it is not there. auto:
    reverse_pagerank where it is of use; if it is not stored, lookahead begins without, and it is
    computed beside training."""

    @model_validator(mode="after")
    def _has_room(self) -> CacheConfig:
        if self.policy != "none" and self.bytes == 0:
            raise ValueError("cache.bytes: expected more than 0 bytes; or set cache.policy=none")
        if self.victim.mode in ("queues", "pool") and self.victim.bytes == 0:
            raise ValueError(
                "cache.victim.bytes: expected more than 0 bytes; or set cache.victim.mode=none"
            )
        return self


class CommConfig(Section):
    mode: Literal["shared", "independent", "partition-aware"] = "shared"
    """How the caches of several ranks go together. shared: every node has one owner, which alone
    reads and caches its row; independent: each rank caches what itself needs; partition-aware:
    shared, but for the rows with the highest scores, which every rank has."""
    owner: Literal["stride", "mix64", "table"] = "mix64"
    """Which rank owns a node. stride: id mod ranks; mix64: a hash; table: comm.owner_table."""
    owner_table: str | None = None
    """A partitioner's .npy file: for each node an owner, 0 to the ranks that share a cache - 1."""
    group: Literal["world", "node"] = "world"
    """Ranks that share a cache: all of the job, or those of each machine: with one host name and
    one network namespace, or where the environment says the same LSM_HOST."""
    transport: Literal["auto", "shm", "gloo", "nccl", "ipc"] = "auto"
    """How rows travel. Between caches in host memory: shm (owners write them into the requester's
    memory, on one host), gloo (as messages) or auto: shm between ranks of a host, else gloo.
    Between caches in GPU memory: ipc (the same with GPUs), nccl, gloo or auto: the first of these
    that works."""
    timeout_secs: Seconds = 300.0
    """Longest wait for another rank's ids or rows, in seconds, before it is an error."""
    replicated_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """partition-aware: part of cache.bytes for the rows that every rank has."""
    chunk_bytes: Annotated[Bytes, Field(ge=4096)] = 4 * 2**20
    """gloo: rows are packed, sent and unpacked in pieces of so many bytes."""

    @model_validator(mode="after")
    def _has_its_table(self) -> CommConfig:
        if (self.owner == "table") != (self.owner_table is not None):
            raise ValueError(
                "comm.owner_table: expected a .npy file with comm.owner=table, and null otherwise"
            )
        return self


class EvalConfig(Section):
    num_neighbors: Fanouts | None = None
    """Neighbours per hop for validation and test. null: as in sampler.num_neighbors, or 10 per hop
    with sampler.kind=ladies."""
    batch_size: Positive | None = None
    """Seeds per rank and batch for validation and test. null: train.batch_size."""


class TrainConfig(Section):
    batch_size: Positive = 1024
    """Seeds per rank and iteration; the global batch is this times the world size."""
    epochs: Positive = 10
    """Passes over the training nodes."""
    seed: Seed = 0
    """Everything random is a function of it: initial weights, shuffling, sampling, dropout."""
    lr: Annotated[float, Field(gt=0)] = 0.001
    """Learning rate of Adam."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """L2 penalty of Adam."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """Arithmetic of the model. tf32: a GPU multiplies float32 matrices with 10 bits of mantissa;
    bf16: autocast to bfloat16. Weights and sums stay float32."""
    compile: bool = False
    """Train the model through torch.compile."""
    num_threads: Annotated[int, Field(ge=0, le=MOST_THREADS)] = 0
    """Threads of torch per rank. 0: this machine's cores divided by its ranks."""
    eval_every: NonNegative = 1
    """Validate after every this many epochs, and after the last. 0: after the last only."""
    select: Literal["best", "last"] = "best"
    """Model that is tested: of the epoch with the best validation accuracy, or of the last."""
    eval: EvalConfig = EvalConfig()
    """Sampled inference for validation and test."""


class CheckpointConfig(Section):
    every_steps: NonNegative = 0
    """Write a checkpoint after every this many iterations. 0: none."""
    every_epochs: NonNegative = 1
    """Write a checkpoint after every this many epochs. 0: none."""
    keep: Positive = 3
    """Newest checkpoints kept; older ones are deleted."""
    resume: str = "auto"
    """auto: continue an interrupted run in run.dir, or a finished one that is to have more epochs;
    other finished runs are refused. never: start afresh, replacing what is in run.dir. Or the path
    of a checkpoint to continue from."""


class MetricsConfig(Section):
    jsonl: bool = True
    """Write run.dir/metrics.jsonl: one JSON line per iteration and per epoch."""
    tensorboard: bool = True
    """Write TensorBoard events to run.dir/tensorboard."""
    progress: Literal["auto", "on", "off"] = "auto"
    """Progress bars on standard error of rank 0. auto: where that is a terminal."""
    log_every: Positive = 10
    """Iterations between two points in TensorBoard and two flushes of metrics.jsonl."""
    profile_steps: NonNegative = 0
    """Iterations, after two to warm up, that a torch.profiler trace of each rank is written of, to
    run.dir/profile. 0: none."""


class DistConfig(Section):
    timeout_secs: Seconds = 300.0
    """Longest wait for another rank, in seconds, before it is an error that names the rank: when
    joining the job, and in every exchange."""


class Config(Section):
    """Everything `lsm train` can be told."""

    run: RunConfig = RunConfig()
    """Where results go."""
    data: DataConfig = DataConfig()
    """The graph."""
    memory: MemoryConfig = MemoryConfig()
    """What all of it may take."""
    topology: TopologyOptions = TopologyOptions()
    """Its structure."""
    storage: StorageConfig = StorageConfig()
    """How feature rows are read."""
    cache: CacheConfig = CacheConfig()
    """What is kept of them."""
    comm: CommConfig = CommConfig()
    """How the caches of several ranks become one."""
    sampler: SamplerOptions = SamplerOptions()
    """Neighbour sampling, and how far it runs ahead."""
    model: ModelOptions = ModelOptions()
    """The network."""
    train: TrainConfig = TrainConfig()
    """Optimisation."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Saving and resuming."""
    metrics: MetricsConfig = MetricsConfig()
    """What is recorded and shown."""
    dist: DistConfig = DistConfig()
    """Several ranks."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that trains. auto: the GPU of this rank if it works (see `lsm doctor`), else the host;
    cuda: an error where it does not."""

    @model_validator(mode="after")
    def _layers_match_hops(self) -> Config:
        hops = len(self.sampler.num_neighbors)
        if self.model.num_layers not in (None, hops):
            raise ValueError(
                f"model.num_layers: expected {hops}, the number of hops in sampler.num_neighbors "
                f"(or null), got {self.model.num_layers}"
            )
        eval_hops = self.train.eval.num_neighbors
        if eval_hops is not None and len(eval_hops) != hops:
            raise ValueError(
                f"train.eval.num_neighbors: expected {hops} hops as in sampler.num_neighbors, "
                f"got {len(eval_hops)}"
            )
        return self

    @property
    def run_dir(self) -> Path:
        """Where the run writes: run.dir, or what null stands for."""
        return Path(self.run.dir or default_run_dir("train", self.data.path))

    @property
    def eval_num_neighbors(self) -> list[int]:
        """Fanouts of validation and test."""
        if self.train.eval.num_neighbors is None and self.sampler.kind == "ladies":
            return [10] * len(self.sampler.num_neighbors)
        return self.train.eval.num_neighbors or self.sampler.num_neighbors

    @property
    def eval_batch_size(self) -> int:
        """Seeds per rank of a validation or test batch."""
        return self.train.eval.batch_size or self.train.batch_size
