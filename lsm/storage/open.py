"""Opens the storage engine that the options name."""

from __future__ import annotations

from typing import Any

from lsm import native
from lsm.data.feature_files import FeatureFiles
from lsm.storage.engine import Storage, nvme_options
from lsm.storage.gds import GdsStorage
from lsm.storage.nvme.label import check_label
from lsm.storage.options import StorageOptions
from lsm.storage.row_map import RowMap


def open_storage(
    files: FeatureFiles, options: StorageOptions | None = None, row_map: RowMap | None = None
) -> Storage:
    """Opens a Storage over ``files``, or over the NVMe namespaces of ``options`` that hold copies
    of them. ``row_map``: as for Storage; None: that of ``files``. Raises ValueError if the label
    of a namespace names other contents."""
    options = options or StorageOptions()
    engine = options.engine
    layout: dict[str, Any] = {
        "num_rows": files.num_rows,
        "row_bytes": files.row_bytes,
        "stripe_bytes": files.stripe_bytes,
        "row_map": row_map or RowMap.of(files),
    }
    if engine == "gds":
        return GdsStorage(files.paths, options=options, **layout)
    if engine == "nvme" and options.transport != "emulated":
        _check_namespaces(files, options)
        return Storage(options.devices, engine=engine, options=options, **layout)
    return Storage(files.paths, engine=engine, options=options, file_sets=files.file_sets, **layout)


def _check_namespaces(files: FeatureFiles, options: StorageOptions) -> None:
    if not options.devices:
        example = {"sysfs": "0000:01:00.0", "libnvm": "/dev/libnvm0"}.get(options.transport)
        raise ValueError(
            f"storage.devices: expected the namespaces that `lsm data load-nvme {files.folder}` "
            f"wrote, such as {example}, or {example}@2 for the second, got none"
        )
    native_options = nvme_options(options)
    for index, drive in enumerate(options.devices):
        label = native.read_last_page(native_options, drive)
        check_label(label, files, options.devices, index)
