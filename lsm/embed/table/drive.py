"""The partitions of a run on a namespace of an NVMe drive, which has no file names.

Slots start at the first byte; the last page is a label that names the run. The run directory keeps
the name, so a run recognises its own drive and uses no other.
"""

from __future__ import annotations

import json
import mmap
import uuid
from pathlib import Path

import numpy as np
import torch

from lsm.core.atomic_file import write_bytes_atomic
from lsm.core.units import format_bytes
from lsm.embed.table.layout import PartitionLayout
from lsm.storage.nvme.contents import START_BYTES, describe_contents
from lsm.storage.nvme.label import LABEL_BYTES, PARTITIONS, label_offset, read_label, write_label
from lsm.storage.transfers import BLOCK_BYTES, Transfers

RECORD_NAME = "drive.json"
_EDGE_BYTES = 1 << 20
_SAMPLES = 64
"""Pages to inspect between the first and the last _EDGE_BYTES of a drive."""


def claim(transfers: Transfers, layout: PartitionLayout, run_dir: Path, erase: str | None) -> None:
    """Makes the drive that of the run in ``run_dir``, whose partitions are not written yet.

    A drive that holds anything but an earlier table of this run is left as it is, unless ``erase``
    names it. Raises ValueError for it and for one that is too small, OSError.
    """
    _require_room(transfers, layout)
    run, label = _name_of(run_dir), _read_label(transfers)
    if label is None or label.get("run") != run:
        found = _contents(transfers)
        if found and erase != str(transfers.path):
            raise ValueError(
                f"storage.devices: {transfers.path} holds {found}, and was left as it is; name "
                f"another drive, or set storage.erase={transfers.path} to lose its contents"
            )
    run = run or uuid.uuid4().hex
    record = {"run": run, "device": str(transfers.path)}
    write_bytes_atomic(run_dir / RECORD_NAME, (json.dumps(record) + "\n").encode())
    _label(transfers, layout, run_dir, run)


def grow(transfers: Transfers, layout: PartitionLayout, run_dir: Path) -> None:
    """Takes room for all slots of ``layout`` on the drive of the run; those that it has stay.
    Raises ValueError for a drive that is too small, OSError."""
    label, run = _read_label(transfers), _name_of(run_dir)
    if run is not None and label is not None and label.get("bytes") != layout.file_bytes:
        _require_room(transfers, layout)
        _label(transfers, layout, run_dir, run)


def check(transfers: Transfers, layout: PartitionLayout, run_dir: Path) -> None:
    """ValueError unless the drive holds the partitions of the run in ``run_dir``."""
    run, label = _name_of(run_dir), _read_label(transfers)
    if run is None or label is None or label.get("run") != run:
        found = _contents(transfers) or "nothing"
        raise ValueError(
            f"storage.devices: {transfers.path} holds {found}, and not the partitions of {run_dir}"
            f"{_known_device(run_dir)}; name their drive, or set checkpoint.resume=never to start "
            "afresh"
        )
    has = label.get("bytes")
    if not isinstance(has, int) or has < layout.file_bytes:
        raise ValueError(
            f"storage.devices: {transfers.path}: expected {layout.file_bytes} bytes of partitions, "
            f"got {has}; set checkpoint.resume=never to start afresh"
        )


def require_file(path: Path) -> None:
    """ValueError if partitions are to be in the file at ``path``, but lie on a drive."""
    known = _known_device(path.parent)
    if known and not path.exists():
        raise ValueError(
            f"run.dir: the partitions of {path.parent} lie on a drive{known}; set storage.devices "
            "and storage.engine=nvme, or checkpoint.resume=never to start afresh"
        )


def read_at(transfers: Transfers, out: np.ndarray, offset: int) -> None:
    """Fills ``out`` from byte ``offset`` on, which need not begin a page."""
    first = offset // BLOCK_BYTES * BLOCK_BYTES
    end = -(-(offset + out.nbytes) // BLOCK_BYTES) * BLOCK_BYTES
    content = read(transfers, first, end - first)[offset - first :]
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(content, np.uint8, out.nbytes)


def _require_room(transfers: Transfers, layout: PartitionLayout) -> None:
    needed = layout.file_bytes + LABEL_BYTES
    if transfers.num_bytes < needed:
        remedy = "name a larger drive, or set a smaller embed.dim"
        remedy += ", or train.select=last, which needs 2 slots" if layout.num_slots > 2 else ""
        raise ValueError(
            f"storage.devices: {transfers.path} has {format_bytes(transfers.num_bytes)}, and "
            f"{layout.num_slots} slots x {layout.partitions} partitions x "
            f"{format_bytes(layout.frame_bytes)} need {format_bytes(needed)}; {remedy}"
        )


def _label(transfers: Transfers, layout: PartitionLayout, run_dir: Path, run: str) -> None:
    fields = {"run": run, "run_dir": str(run_dir.resolve()), "bytes": layout.file_bytes}
    _move(transfers, write_label(PARTITIONS, fields), label_offset(transfers.num_bytes))
    transfers.sync()


def _read_label(transfers: Transfers) -> dict[str, object] | None:
    last = read(transfers, label_offset(transfers.num_bytes), LABEL_BYTES)
    return read_label(last, PARTITIONS)


def _contents(transfers: Transfers) -> str:
    """Describes the content of the drive in words; empty if nothing was found."""
    size = transfers.num_bytes // BLOCK_BYTES * BLOCK_BYTES
    edge = min(_EDGE_BYTES, size)
    start, end = read(transfers, 0, edge), read(transfers, size - edge, edge)
    pages = np.linspace(0, size // BLOCK_BYTES - 1, _SAMPLES, dtype=np.int64).tolist()
    samples = [read(transfers, page * BLOCK_BYTES, BLOCK_BYTES) for page in pages]
    last = read(transfers, label_offset(transfers.num_bytes), LABEL_BYTES)
    return describe_contents(start[:START_BYTES], last, start, end, *samples)


def _name_of(run_dir: Path) -> str | None:
    """The name in the labels of the run; None if it has not been on a drive yet."""
    name = _record(run_dir).get("run")
    return name if isinstance(name, str) else None


def _known_device(run_dir: Path) -> str:
    device = _record(run_dir).get("device")
    return f" (they were written to {device})" if device else ""


def _record(run_dir: Path) -> dict[str, object]:
    try:
        found = json.loads((run_dir / RECORD_NAME).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read(transfers: Transfers, offset: int, num_bytes: int) -> bytes:
    memory = _memory(num_bytes)
    transfers.swap(memory, read_from=offset)
    return memory.numpy().tobytes()


def _move(transfers: Transfers, content: bytes, offset: int) -> None:
    memory = _memory(len(content))
    memory.numpy()[:] = np.frombuffer(content, np.uint8)
    transfers.swap(memory, write_to=offset)


def _memory(num_bytes: int) -> torch.Tensor:
    """[num_bytes] uint8 that begins with a page."""
    return torch.frombuffer(mmap.mmap(-1, num_bytes), dtype=torch.uint8)
