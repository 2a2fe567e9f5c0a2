"""A range of a model's layers, run by the model's own forward.

The module that runs the layers is used through shallow twins, one for each range: they share all weights, but
see only the range's layers and a config cut to them. What the model does to its inputs before the first layer
(position embeddings, multipliers) and after the last is the client's business: the true hidden states are put
in at the first layer's door and taken out at the last one's.
"""

import copy
import inspect
from collections import OrderedDict
from typing import Any

import torch
from torch import nn

# Lists of a config that have one entry a layer and are read while the model runs.
_PER_LAYER = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "no_rope_layers",
    "attention_layers",
    "kv_sharing_modes",
)


class Inert(nn.Module):
    """In the place of a module that is not ours, and whose result nobody uses: gives back what fits in shape.

    Args:
        embedding: it stands for an embedding, whose input has another shape than its output.
    """

    def __init__(self, *, embedding: bool) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, inputs: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The input; for an embedding a zero that can be added to anything."""
        return torch.zeros((), device=inputs.device) if self.embedding else inputs


class _Layers(nn.ModuleList):
    """A list of layers whose full slice is itself, since models take `layers[:n]` at every step."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice) and index.indices(len(self)) == (0, len(self), 1):
            return self
        return super().__getitem__(index)


class RangeView:
    """Layers `start`…`end`-1 of a model's core. Not for several threads at once.

    Args:
        core: the module that runs the layers; everything in it but its layers is inert.
        name: name of its list of layers, which holds the range's layers under their own numbers.
        start, end: numbers of the range in the whole model.
    """

    def __init__(self, core: nn.Module, name: str, start: int, end: int) -> None:
        self.start, self.end = start, end
        layers = getattr(core, name)
        twins = [_twin(layers._modules[str(number)]) for number in range(start, end)]
        self.config = cut_config(core.config, start, end)
        self._core = _twin(core)
        self._core.__dict__["config"] = self.config
        self._core._modules[name] = _Layers(twins)
        accepted = inspect.signature(type(core).forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._hidden: torch.Tensor | None = None
        self._output: torch.Tensor | None = None
        self._prompts: torch.Tensor | None = None
        self._starts: list[int] | None = None
        self._deep: list[Any] = []
        self._twins = twins
        twins[0].register_forward_pre_hook(self._enter, with_kwargs=True)
        twins[-1].register_forward_hook(self._leave)

    def run(
        self,
        hidden: torch.Tensor,
        *,
        cache: Any,
        mask: torch.Tensor | None,
        position_ids: torch.Tensor,
        prompts: torch.Tensor | None = None,
        prompt_starts: list[int] | None = None,
    ) -> torch.Tensor:
        """The hidden states after the last layer.

        Args:
            hidden: [rows, n, hidden size].
            cache: a LegCache of the same range, or None.
            mask: int64 [rows, past + n], 0 = padding; None = no padding at all.
            position_ids: int64 [rows or 1, n].
            prompts: [layers, rows or 1, p, hidden size], added to the inputs of each layer.
            prompt_starts: the row of this step to which the first prompt is added, one a batch row; None = 0.
        """
        kwargs: dict[str, Any] = {"position_ids": position_ids} if self._takes_positions else {}
        self._hidden = hidden
        if prompts is not None:
            self._arm(prompts, prompt_starts)
        try:
            self._core(
                inputs_embeds=hidden, attention_mask=mask, cache=cache, use_cache=cache is not None, **kwargs
            )
            output = self._output
        finally:
            self._hidden = self._output = None
            self._disarm()
        assert output is not None
        return output

    def _enter(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return _with_hidden(args, kwargs, self._hidden)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._output = output[0] if isinstance(output, tuple) else output

    def _arm(self, prompts: torch.Tensor, starts: list[int] | None) -> None:
        # After _enter, since hooks run in the order of their registration.
        for number, twin in enumerate(self._twins):
            hook = _prompt_hook(prompts[number], starts)
            self._deep.append(twin.register_forward_pre_hook(hook, with_kwargs=True))

    def _disarm(self) -> None:
        for handle in self._deep:
            handle.remove()
        self._deep.clear()


def cut_config(config: Any, start: int, end: int) -> Any:
    """A copy of a config that describes only layers `start`…`end`-1."""
    whole = config.num_hidden_layers
    cut = copy.deepcopy(config)
    cut.num_hidden_layers = end - start
    for name in _PER_LAYER:
        entries = getattr(config, name, None)
        if isinstance(entries, list) and len(entries) == whole:
            setattr(cut, name, entries[start:end])
    return cut


def add_prompts(hidden: torch.Tensor, prompts: torch.Tensor, starts: list[int] | None) -> torch.Tensor:
    """`hidden` [rows, n, h] plus `prompts` [rows or 1, p, h] from token `starts[row]` on; what sticks out is cut.

    A copy: neither argument changes, and autograd works with respect to both.
    """
    prompts = prompts.to(hidden)
    rows, count = hidden.shape[0], hidden.shape[1]
    result = hidden.clone()
    if starts is None or len(set(starts)) == 1:
        first = starts[0] if starts else 0
        fits = min(prompts.shape[1], count - first)
        if fits > 0:
            result[:, first : first + fits] += prompts[:, :fits]
        return result
    prompts = prompts.expand(rows, -1, -1)
    for row, first in enumerate(starts):
        fits = min(prompts.shape[1], count - first)
        if fits > 0:
            result[row, first : first + fits] += prompts[row, :fits]
    return result


def _prompt_hook(prompts: torch.Tensor, starts: list[int] | None) -> Any:
    def hook(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        hidden = args[0] if args else kwargs["hidden_states"]
        return _with_hidden(args, kwargs, add_prompts(hidden, prompts, starts))

    return hook


def _with_hidden(
    args: tuple[Any, ...], kwargs: dict[str, Any], hidden: torch.Tensor | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if args:
        return (hidden, *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": hidden}


def _twin(module: nn.Module) -> Any:
    """Another face of a module: same parameters and children, own list of children, own hooks."""
    twin = object.__new__(type(module))
    twin.__dict__.update(module.__dict__)
    twin.__dict__["_modules"] = dict(module._modules)
    for hooks in (
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
    ):
        twin.__dict__[hooks] = OrderedDict(module.__dict__[hooks])
    return twin
