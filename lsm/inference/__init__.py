"""Inference of all nodes from disk, layer by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.inference.driver import infer
    from lsm.inference.options import InferenceOptions

__all__ = ["InferenceOptions", "infer"]

__getattr__, __dir__ = lazily(__name__, {"InferenceOptions": "options", "infer": "driver"})
