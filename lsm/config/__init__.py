"""The configuration: its schema, files and overrides."""

from typing import TYPE_CHECKING

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.config.load import load_config
    from lsm.config.schema import Config

__all__ = ["Config", "load_config"]

__getattr__, __dir__ = lazily(__name__, {"Config": "schema", "load_config": "load"})
