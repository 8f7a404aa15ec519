"""Errors of the operating system, in words."""

from __future__ import annotations

import errno


def in_words(error: BaseException) -> str:
    """The text of ``error`` without Python's "[Errno 28]": "No space left on device: stores/g"."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    files = [str(file) for file in (error.filename, error.filename2) if file is not None]
    remedy = " (raise the limit: ulimit -n)" if error.errno == errno.EMFILE else ""
    return ": ".join([error.strerror + remedy, *([" -> ".join(files)] if files else [])])
