"""Streams feature rows into the store's files, converting their type on the way."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch

from lsm.core.arguments import option
from lsm.core.units import format_bytes
from lsm.data import format as layout
from lsm.data.checks import Named, rows_not_finite
from lsm.data.format import FEATURE_DTYPES, PAGE_BYTES, FeatureMeta
from lsm.data.stripes import StripedWriter
from lsm.data.writer import StoreWriter

if TYPE_CHECKING:
    from lsm.data.convert.write_store import StoreOptions

logger = logging.getLogger(__name__)

CONVERSIONS = ("float16", "float32", "bfloat16")

MOST_STRIPES = 256
"""Each stripe is a file that stays open during the whole conversion, with a buffer of 4 MiB."""


def feature_meta(dim: int, dtype: str, options: StoreOptions, folder: str = "") -> FeatureMeta:
    """Layout of features of ``dim`` elements of ``dtype`` in ``folder`` of the store, striped as
    ``options`` say. Raises ValueError for an unusable one."""
    stripes, stripe_bytes = options.get("stripes", 1), options.get("stripe_bytes", PAGE_BYTES)
    if dtype not in FEATURE_DTYPES:
        raise ValueError(f"dtype: expected one of {', '.join(FEATURE_DTYPES)}, got {dtype}")
    if not 1 <= stripes <= MOST_STRIPES:
        raise ValueError(f"stripes: expected 1 to {MOST_STRIPES}, got {stripes}")
    if stripe_bytes < PAGE_BYTES or stripe_bytes % PAGE_BYTES:
        raise ValueError(f"stripe bytes: expected a multiple of {PAGE_BYTES}, got {stripe_bytes}")
    return FeatureMeta(
        dim=dim,
        dtype=dtype,
        row_bytes=dim * FEATURE_DTYPES[dtype],
        files=layout.feature_files(stripes, folder),
        stripe_bytes=stripe_bytes,
    )


def converted_meta(
    where: str, dim: int, source: str, options: StoreOptions, folder: str = ""
) -> FeatureMeta:
    """As feature_meta(), of features that ``where`` has as ``source``, with the dtype of
    ``options``. Errors name ``where``."""
    try:
        return feature_meta(dim, _converted(source, options.get("dtype")), options, folder)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _converted(source: str, dtype: str | None) -> str:
    """The dtype of converted features: ``dtype``, or ``source``'s if None. Raises ValueError for a
    conversion that is not supported."""
    is_complex = source.startswith("complex")
    if is_complex or (dtype is None and source not in FEATURE_DTYPES):
        remedy = "save real and imaginary parts as columns"
        if not is_complex:
            remedy = f"{option('dtype', 'float32')} converts them"
        raise ValueError(
            f"dtype: expected one of {', '.join(FEATURE_DTYPES)}, got {source}; {remedy}"
        )
    if dtype is None or dtype == source:
        return source
    if dtype not in CONVERSIONS:
        raise ValueError(f"dtype: expected one of {', '.join(CONVERSIONS)}, got {dtype}")
    return dtype


def warn_of_wide(dtype: str, num_bytes: int, where: str) -> None:
    """Warns of features, ``num_bytes`` of ``where``, that are stored in 64 bits a value."""
    if dtype in ("float64", "int64"):
        half = num_bytes // 2
        logger.warning(
            "%s: %s: the store's features take %s, and models compute in float32; %s makes them "
            "%s, float16 or bfloat16 %s",
            where,
            dtype,
            format_bytes(num_bytes),
            option("dtype", "float32"),
            *map(format_bytes, (half, half // 2)),
        )


def write_features(
    writer: StoreWriter,
    meta: FeatureMeta,
    chunks: Iterable[tuple[int, np.ndarray]],
    advance: Callable[[int], None],
    where: str,
) -> None:
    """Writes ``chunks`` of (first row, [n, dim] rows) in order. ``advance`` gets the source bytes
    done. Warns of rows with NaN or infinite values. ``where``: the source of the rows."""
    not_finite = Named()
    striped = StripedWriter([writer.file(name) for name in meta.files], meta.stripe_bytes)
    for first_row, rows in chunks:
        striped.write(convert(rows, meta.dtype, first_row))
        if rows.dtype.kind == "f":
            not_finite.add(first_row + rows_not_finite(torch.from_numpy(rows)))
        advance(rows.nbytes)
    striped.close()
    if not_finite.count:
        logger.warning(
            "%s: rows with NaN or infinite features: %d (first: %s): the loss of a batch with one "
            "of them is NaN; correct them in the source (numpy.nan_to_num) and convert again",
            where,
            not_finite.count,
            not_finite,
        )


def convert(rows: np.ndarray, dtype: str, first_row: int) -> np.ndarray:
    """``rows`` with elements of ``dtype`` (bfloat16 as its uint16 bit patterns).

    Raises ValueError, which names the row, if a finite value becomes infinite.
    """
    if dtype == str(rows.dtype):
        return rows
    if dtype == "bfloat16":
        out = torch.from_numpy(rows).to(torch.bfloat16).view(torch.uint16).numpy()
        is_infinite = (out & 0x7FFF) == 0x7F80
    else:
        with np.errstate(over="ignore"):
            out = rows.astype(dtype)
        is_infinite = np.isinf(out)
    if is_infinite.any():
        overflowed = np.flatnonzero((is_infinite & np.isfinite(rows)).any(axis=1))
        if len(overflowed):
            raise ValueError(
                f"features: row {first_row + overflowed[0]} has values too large for {dtype}; "
                f"leave out {option('dtype', dtype)}"
            )
    return out
