"""The host in place of a GPU: sees how tensors are copied to it."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class Uploads(TorchFunctionMode):
    """A context in which tensors for a GPU stay on the host. ``waiting``: the shapes of tensors
    that were copied from memory that is not page-locked, or that the thread waited for;
    ``num_copies``: of all copies."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[torch.Size] = []
        self.num_copies = 0
        self._locked: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is Tensor.pin_memory:
            locked = args[0].clone()
            self._locked[id(locked)] = locked
            return locked
        if func is Tensor.to and any(map(_is_gpu, (*args[1:], *kwargs.values()))):
            self.num_copies += 1
            if not (kwargs.get("non_blocking") and self._locked.get(id(args[0])) is args[0]):
                self.waiting.append(args[0].shape)
            return args[0].clone()
        if _is_gpu(kwargs.get("device")):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def _is_gpu(argument: object) -> bool:
    if isinstance(argument, str | torch.device):
        return torch.device(argument).type == "cuda"
    return False
