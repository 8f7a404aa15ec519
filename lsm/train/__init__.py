"""Training: the job, its trainer, budgets, checkpoints and metrics.

``lsm.fit(config)`` trains. So does ``lsm.train(config)``, its old name: the package is callable.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lsm.core.lazy import lazily

if TYPE_CHECKING:
    from lsm.config.schema import Config
    from lsm.train.prediction import predict
    from lsm.train.saved import load_model
    from lsm.train.start import fit

__all__ = ["fit", "load_model", "predict"]

__getattr__, __dir__ = lazily(
    __name__, {"fit": "start", "load_model": "saved", "predict": "prediction"}
)


class _CallablePackage(ModuleType):
    """A package that trains when it is called. Its modules are imported as usual."""

    def __call__(self, config: Config) -> dict[str, Any]:
        """The old name of ``lsm.fit``."""
        from lsm.train.start import fit

        return fit(config)


sys.modules[__name__].__class__ = _CallablePackage
