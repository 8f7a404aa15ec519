"""Divides memory between a window, the lines of a cache and its victim buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lsm.cache import memory
from lsm.cache.options import CacheOptions
from lsm.core.memory import Shape, Terms
from lsm.core.option_types import Auto
from lsm.core.units import format_bytes

_WINDOW_SHARE = 4  # the window takes at most this fraction of the memory of rows and window
_PREFETCH_SHARE = 8  # and batches that wait for rows of the victim buffer this of the rest


@dataclass(frozen=True)
class Share:
    """The memory that a cache takes of a budget."""

    options: CacheOptions
    """With a number for each ``auto`` but that of ``ways``."""
    terms: Terms
    window_bytes: int
    """Upper bound of the window's memory."""
    note: str | None
    """A window that is shorter than requested."""


def divide(
    options: CacheOptions,
    shape: Shape,
    left: int,
    *,
    batches: Callable[[int], int],
    window_each: int,
    gpu_room: int = 0,
) -> Share:
    """The shares of ``left`` bytes of host memory. Sizes that are not ``auto`` stay, even if they
    exceed it.

    options: with a policy and a mode of the victim buffer. batches: memory of the batches, given
    the number of those that wait for rows of the victim buffer. window_each: memory of an iteration
    in the window. gpu_room: GPU memory for the cache, if it lies there.
    """
    left -= options.constant.bytes + (0 if shape.on_gpu else options.static.bytes)
    prefetch = _prefetch(options, shape, left - batches(0))
    batch_bytes = batches(prefetch)
    left -= batch_bytes
    tiers = _Tiers.of(options, shape)
    wanted, each = memory.wanted_window(options, shape), max(1, window_each)
    room = tiers.room_for_window(left)
    window = max(1, min(wanted, room // each))
    lines, slots = tiers.split(max(0, left - window * each))
    if shape.on_gpu:
        lines = _lines_on_gpu(options, shape, gpu_room)
    done = _settled(options, shape, lines, slots, window, prefetch)
    return Share(
        done,
        Terms({"batches": batch_bytes, "window": window * each}) + memory.terms(done, shape),
        # With a margin; otherwise a few larger batches would shorten the window.
        window_bytes=max(window * each, min(room, window * each * 5 // 4)),
        note=_shorter(window, wanted, each),
    )


def _prefetch(options: CacheOptions, shape: Shape, rest: int) -> int:
    """``cache.victim.prefetch``, as far as ``rest`` bytes next to the batches have room for it."""
    victim = options.victim
    prefetch = victim.prefetch if victim.mode != "none" else 0
    if shape.on_gpu or not shape.rows_bytes:
        return prefetch
    return min(prefetch, max(0, rest) // _PREFETCH_SHARE // shape.rows_bytes)


def _lines_on_gpu(options: CacheOptions, shape: Shape, gpu_room: int) -> int:
    if options.bytes != "auto":
        return options.bytes
    return min(gpu_room, memory.most_bytes(shape))


def _settled(
    options: CacheOptions, shape: Shape, lines: int, slots: int, window: int, prefetch: int
) -> CacheOptions:
    """``options`` with these numbers. A victim buffer without room for a row is none."""
    victim = options.victim
    is_empty = victim.bytes == "auto" and slots < shape.row_bytes
    update = {
        "mode": "none" if is_empty else victim.mode,
        "bytes": slots,
        "prefetch": prefetch,
    }
    return options.model_copy(
        update={
            "bytes": lines,
            "window": max(1, min(options.window, window)),
            "victim": victim.model_copy(update=update),
        }
    )


def _shorter(window: int, wanted: int, each: int) -> str | None:
    """A remark on a window that is shorter than wanted."""
    if window >= wanted:
        return None
    return (
        f"cache.window: {wanted} iterations of {format_bytes(each)} do not fit in memory.bytes "
        f"with the rest; using {window}"
    )


@dataclass(frozen=True)
class _Tiers:
    """Bytes of rows in lines and victim slots of the host; each may be ``auto``."""

    shape: Shape
    lines: int | Auto
    slots: int | Auto
    line_bytes: int

    @classmethod
    def of(cls, options: CacheOptions, shape: Shape) -> _Tiers:
        """The tiers of ``options`` on the host."""
        return cls(
            shape,
            lines=0 if shape.on_gpu else options.bytes,
            slots=options.victim.bytes if options.victim.mode != "none" else 0,
            line_bytes=memory.line_bytes(options, on_gpu=False),
        )

    def room_for_window(self, left: int) -> int:
        """Bytes that a window may take."""
        room = left - self._with_lines(0 if self.lines == "auto" else self.lines)
        room -= self._with_slots(0 if self.slots == "auto" else self.slots)
        return room // _WINDOW_SHARE if "auto" in (self.lines, self.slots) else room

    def split(self, left: int) -> tuple[int, int]:
        """Bytes of lines and slots in ``left`` bytes. An equal split is no worse than one cache of
        the sum."""
        row, most = self.shape.row_bytes, memory.most_bytes(self.shape)
        lines, slots = self.lines, self.slots
        if not isinstance(slots, str):
            left -= self._with_slots(slots)
        if isinstance(lines, str):
            part = left // 2 if isinstance(slots, str) else left
            lines = int(max(0, min(part // (row + self.line_bytes) * row, most)))
        left -= self._with_lines(lines)
        if isinstance(slots, str):
            useful = most if self.shape.on_gpu else min(lines, max(0, most - lines))
            slots = int(min(max(0, left) // (row + memory.SLOT_BYTES) * row, useful))
        return lines, slots

    def _with_lines(self, num_bytes: int) -> int:
        return memory.with_lines(num_bytes, self.line_bytes, self.shape)

    def _with_slots(self, num_bytes: int) -> int:
        return memory.with_slots(num_bytes, self.shape.row_bytes)
