"""The modules that PyG generates into the temporary directory, one per class of convolution.

PyG never removes them, so every process would leave several behind.
"""

from __future__ import annotations

import linecache
import os
import sys
import tempfile
from pathlib import Path

_seen: set[str] = set()


def remove_templates() -> None:
    """Deletes PyG's generated files, which are loaded. Their source stays in ``linecache``, for
    tracebacks and TorchScript. So nothing is left behind however the process ends."""
    folder = os.path.join(tempfile.gettempdir(), "")
    # There are thousands, and PyG loads one of a name only once.
    for name in set(sys.modules) - _seen:
        _seen.add(name)
        module = sys.modules.get(name)
        path = getattr(module, "__file__", None) or ""
        if not path.startswith(f"{folder}{name}_"):
            continue
        file = Path(path)
        lines = linecache.getlines(str(file))
        # Without a time of change, linecache keeps the lines of a file that is gone.
        linecache.cache[str(file)] = (sum(map(len, lines)), None, lines, str(file))
        file.unlink(missing_ok=True)
        Path(getattr(module, "__cached__", None) or file).unlink(missing_ok=True)
