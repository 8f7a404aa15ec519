"""Finds calls of torch that wait for a GPU, on the host, where they return at once."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from lsm.run.loop import Loop

WAITING = {
    *("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select", "bincount"),
    *("_unique", "_unique2", "unique_dim", "unique_consecutive", "_coalesce"),
}
"""Operators whose result, or its size, the host has to know."""
LEAVING = {Tensor.cpu, Tensor.numpy, Tensor.tolist, Tensor.item}
"""Calls that copy to the host; here some of them do nothing."""


class _Operators(TorchDispatchMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in WAITING or _has_mask(name, args) or _has_unknown_size(name, args, kwargs):
            self._found.append(f"{func} {_caller()}")
        return func(*args, **kwargs)


def _has_mask(name: str, args: tuple) -> bool:
    """An index of booleans has a size that depends on them."""
    if name not in ("index", "index_put", "index_put_", "_unsafe_index"):
        return False
    return any(each is not None and each.dtype is torch.bool for each in args[1])


def _has_unknown_size(name: str, args: tuple, kwargs: dict) -> bool:
    return name == "repeat_interleave" and kwargs.get("output_size") is None


class _Calls(TorchFunctionMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self._found = found

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        to_host = func is Tensor.to and any(map(_is_host, (*args[1:], *kwargs.values())))
        # What torch's own functions move is on the device that they move it to.
        if func in LEAVING or (to_host and "/torch/" not in sys._getframe(1).f_code.co_filename):
            self._found.append(f"{resolve_name(func)} {_caller()}")
        return func(*args, **kwargs)


def _caller() -> str:
    """The lines of the callers, without those of torch."""
    frames = traceback.extract_stack()[:-2]
    own = [each for each in frames if "/torch/" not in each.filename][-3:]
    return " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(own))


def _is_host(argument: object) -> bool:
    if isinstance(argument, Tensor):
        return False
    return argument == "cpu" or argument == torch.device("cpu")


@contextmanager
def finding_waits(found: list[str]) -> Iterator[None]:
    """Adds to ``found`` the calls of this thread that would wait if tensors were on a GPU."""
    with _Operators(found), _Calls(found):
        yield


@contextmanager
def host_only(module: ModuleType, name: str) -> Iterator[None]:
    """Leaves out the calls of a function of ``module`` whose tensors are the host's on any
    device."""
    function = getattr(module, name)

    def unseen(*args):
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return function(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, unseen)
        yield


@dataclass
class Waits:
    """Calls that wait: those of iterations, and the number of reads of losses."""

    in_iterations: list[str] = field(default_factory=list)
    num_reads: int = 0


def watch(monkeypatch: pytest.MonkeyPatch, trainer: type) -> Waits:
    """Collects the waits of the ``trainer``'s iterations, and of the reads of their losses, of
    which each waits once at most."""
    waits, train, read = Waits(), trainer.train, Loop._read

    def watched_train(self, batch):
        with finding_waits(waits.in_iterations):
            return train(self, batch)

    def counted_read(self):
        found = []
        with finding_waits(found):
            read(self)
        assert len(found) <= 1, found
        waits.num_reads += len(found)

    monkeypatch.setattr(trainer, "train", watched_train)
    monkeypatch.setattr(Loop, "_read", counted_read)
    return waits
