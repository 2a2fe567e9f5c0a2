"""Linear layers by oneDNN: the same weights and nearly the same sums, autograd and other types as before."""

import torch
from torch import nn

from blockswarm_wire.model.linear import SharedLinear, share_linears


def test_shared_linears_give_nearly_the_same_and_keep_their_weights():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(96, 160), nn.ReLU(), nn.Linear(160, 64, bias=False))
    rows = torch.randn(2, 3, 96)
    with torch.inference_mode():
        want = model(rows)
    before = [weight.data_ptr() for weight in model.parameters()]
    share_linears(model)
    with torch.inference_mode():
        got = model(rows)
    assert [type(part) for part in model] == [SharedLinear, nn.ReLU, SharedLinear]
    assert [weight.data_ptr() for weight in model.parameters()] == before
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_autograd_and_other_types_take_torchs_own_way():
    layer = nn.Linear(8, 4)
    rows = torch.randn(2, 8, requires_grad=True)
    want = layer(rows)
    share_linears(layer)
    assert torch.equal(layer(rows), want)
    layer(rows).sum().backward()
    assert rows.grad is not None
    layer.to(torch.bfloat16)
    with torch.inference_mode():
        assert layer(rows.detach().bfloat16()).dtype == torch.bfloat16


def test_subclasses_stay_what_they_are():
    class Own(nn.Linear):
        pass

    model = nn.Sequential(Own(4, 4))
    share_linears(model)
    assert type(model[0]) is Own
