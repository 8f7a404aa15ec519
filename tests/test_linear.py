"""Products by oneDNN equal torch's, in value and gradients, and repeat themselves."""

import pytest
import torch
from torch_geometric.nn import Linear

from lsm.linear import OneDnnLinear, is_available, use_onednn

pytestmark = pytest.mark.skipif(not is_available(), reason="torch without oneDNN on this machine")


def make(in_dim=37, out_dim=19, bias=True):
    torch.manual_seed(0)
    layer = Linear(in_dim, out_dim, bias=bias)
    use_onednn(layer)
    assert type(layer) is OneDnnLinear
    return layer


def run(forward, layer, x):
    """Output and gradients of sum(output * fixed weights), x's among them."""
    x = x.detach().requires_grad_()
    layer.zero_grad()
    out = forward(x)
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    return [out.detach(), x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]


@pytest.mark.parametrize("num_rows", [1, 5, 1000])
@pytest.mark.parametrize("bias", [True, False])
def test_equals_the_product_in_double_precision(num_rows, bias):
    layer = make(bias=bias)
    x = torch.randn(num_rows, 37)
    ours = run(layer, layer, x)
    exact_layer = Linear(37, 19, bias=bias).double()
    exact_layer.load_state_dict(layer.state_dict())
    exact = run(exact_layer, exact_layer, x.double())
    for own, other in zip(ours, exact, strict=True):
        # Sums of up to 1,000 float32 products.
        torch.testing.assert_close(own.double(), other, rtol=1e-4, atol=1e-4)


def test_inputs_in_any_layout_give_the_same():
    layer = make()
    x = torch.randn(37, 100)
    assert torch.equal(layer(x.t()), layer(x.t().contiguous()))
    assert torch.equal(layer(torch.cat([x, x]).t()[:, :37]), layer(x.t().contiguous()))
    out = layer(x.t().contiguous().requires_grad_())
    out.sum().backward()  # an expanded gradient, of strides zero
    expected = torch.full((19,), 100.0)
    torch.testing.assert_close(layer.bias.grad, expected)
    torch.testing.assert_close(layer.weight.grad, x.sum(dim=1).expand(19, 37), rtol=1e-4, atol=1e-4)


def test_repeats_itself_bit_for_bit():
    layer = make(256, 64)
    x = torch.randn(5000, 256)
    for first, second in zip(run(layer, layer, x), run(layer, layer, x), strict=True):
        assert torch.equal(first, second)


def test_other_inputs_go_to_torch():
    layer = make()
    assert layer(torch.empty(0, 37)).shape == (0, 19)
    assert layer(torch.randn(2, 3, 37)).shape == (2, 3, 19)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(torch.randn(4, 37)).dtype == torch.bfloat16
