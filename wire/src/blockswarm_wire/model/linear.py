"""Linear layers computed by oneDNN: it shares a step of few rows among all threads, where torch's BLAS uses one."""

import torch
from torch import nn


class SharedLinear(nn.Linear):
    """`nn.Linear` for float32 inference on a CPU; the same weights, summed in another order (differs by about 1e-6).

    Decoding multiplies one row with every weight, so it runs as fast as weights are read. torch hands such a product to
    a BLAS routine of one thread.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """As `nn.Linear`; where autograd watches, or elsewhere than on a CPU in float32, it is `nn.Linear`."""
        if torch.is_grad_enabled() or not _fits(self.weight) or not _fits(input):
            return super().forward(input)
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            input, self.weight, self.bias, "none", [], ""
        )
        return output


def share_linears(model: nn.Module) -> None:
    """Turn every plain `nn.Linear` into a `SharedLinear`, in place; subclasses stay what they are."""
    if torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        for module in model.modules():
            if type(module) is nn.Linear:
                module.__class__ = SharedLinear


def _fits(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.is_cpu
