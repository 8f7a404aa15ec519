import os

import pytest

from lsm.core.os_error import in_words


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, os.strerror(28), "stores/g"), "No space left on device: stores/g"),
        (OSError(18, os.strerror(18), "a", None, "b"), "Invalid cross-device link: a -> b"),
        (OSError(24, os.strerror(24), "g"), "Too many open files (raise the limit: ulimit -n): g"),
        (ConnectionRefusedError(111, os.strerror(111)), "Connection refused"),
        (FileNotFoundError("--trace: t.npz: no such file"), "--trace: t.npz: no such file"),
        (TimeoutError(), ""),
        (ValueError("train.lr: expected a number"), "train.lr: expected a number"),
    ],
)
def test_errors_say_what_then_where(error, text):
    assert in_words(error) == text
