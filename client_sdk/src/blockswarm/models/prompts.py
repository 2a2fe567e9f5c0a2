"""Trained prompts: virtual tokens before the text ("ptune"), and additions to them in every block ("deep_ptune")."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from blockswarm_wire.errors import InvalidArgument

TUNING_MODES = ("ptune", "deep_ptune")


class Prompts(nn.Module):
    """The only trainable parameters of a model that is tuned by prompts; float32, whatever the blocks compute in.

    Args:
        mode: "ptune" or "deep_ptune".
        length: virtual tokens.
        hidden_size: of the blocks.
        num_blocks: of the model.
        std: spread of the initial values.
    """

    def __init__(
        self, mode: str, length: int, hidden_size: int, num_blocks: int, *, std: float = 0.02
    ) -> None:
        super().__init__()
        if mode not in TUNING_MODES:
            raise InvalidArgument(f"tuning_mode {mode!r} is not one of {', '.join(TUNING_MODES)}")
        if length < 1:
            raise InvalidArgument(f"pre_seq_len must be at least 1 with tuning_mode={mode!r}, not {length}")
        self.mode = mode
        self.length = length
        self.shallow = nn.Parameter(torch.randn(length, hidden_size) * std)
        self.deep: nn.Parameter | None = None
        if mode == "deep_ptune":
            self.deep = nn.Parameter(torch.randn(num_blocks, 1, length, hidden_size) * std)

    def prepend(
        self, hidden: torch.Tensor, pad: list[int] | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """([batch, length + tokens, hidden], deep prompts [blocks, 1, length, hidden] or None).

        The virtual tokens stand before each row's first real token, behind its padding, so that padding stays on the
        left.
        """
        rows = self.shallow.to(hidden.dtype).expand(len(hidden), -1, -1)
        if pad is None:
            dressed = torch.cat([rows, hidden], dim=1)
        else:
            parts = zip(rows, hidden, pad, strict=True)
            dressed = torch.stack([torch.cat([row[:n], own, row[n:]]) for own, row, n in parts])
        return dressed, None if self.deep is None else self.deep.to(hidden.dtype)

    def strip(self, output: torch.Tensor, pad: list[int] | None) -> torch.Tensor:
        """`output` without the rows that `prepend` added."""
        if pad is None:
            return output[:, self.length :]
        rows = zip(output, pad, strict=True)
        return torch.stack([torch.cat([row[:n], row[n + self.length :]]) for row, n in rows])

    def save(self, path: str | Path) -> None:
        """Write the prompts as a safetensors file."""
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.named_parameters()}
        save_file(tensors, Path(path), metadata={"tuning_mode": self.mode, "pre_seq_len": str(self.length)})

    def load(self, path: str | Path) -> None:
        """Read prompts that `save` wrote.

        Raises:
            InvalidArgument: no such file, or one of other prompts; names the difference.
        """
        try:
            with safe_open(Path(path), framework="pt") as file:
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise InvalidArgument(f"prompts in {path} cannot be read: {error}") from error
        own = dict(self.named_parameters())
        expected = {name: tuple(value.shape) for name, value in own.items()}
        shapes = {name: tuple(value.shape) for name, value in found.items()}
        if shapes != expected:
            raise InvalidArgument(f"prompts in {path} have shapes {shapes}, but this model needs {expected}")
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(found[name])
