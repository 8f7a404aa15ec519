"""Dense layers on the host through oneDNN.

torch multiplies float32 matrices with MKL, which on AMD processors leaves half of the machine idle
(one thread of an EPYC with AVX-512, [10500, 256] x [256, 128]: MKL 93 GFLOP/s, oneDNN 209). These
products are most of a training step. Both compute in float32; sums are rounded in another order.
"""

from __future__ import annotations

import platform

import torch
from torch import Tensor, nn
from torch_geometric.nn import Linear


def use_onednn(model: nn.Module) -> None:
    """Makes every PyG ``Linear`` in ``model`` multiply with oneDNN, where torch has it (x86)."""
    if not is_available():
        return
    for module in model.modules():
        if type(module) is Linear:
            module.__class__ = OneDnnLinear  # parameters, their names and initialisation stay


def is_available() -> bool:
    """Whether this torch can hand float32 matrices to oneDNN on this machine."""
    return (
        platform.machine() == "x86_64"
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


class OneDnnLinear(Linear):
    """PyG's ``Linear`` with float32 products on the host by oneDNN; all else as it is there."""

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""
        ours = x.dim() == 2 and len(x) > 0 and x.dtype == torch.float32 and x.device.type == "cpu"
        if not ours or torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        return _Product.apply(x, self.weight, self.bias)


class _Product(torch.autograd.Function):
    """x [n, in], weight [out, in], bias [out] or None -> x weight^T + bias [n, out]."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            _multiply(gradient, weight.t()) if for_x else None,
            _multiply(gradient.t(), x.t()) if for_weight else None,
            gradient.sum(dim=0) if for_bias else None,
        )


def _multiply(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """a b^T + bias, rows of both being contracted."""
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
