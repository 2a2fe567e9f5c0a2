"""The blocks of one span: loaded from a model folder, run with a leg's cache or with autograd."""

import logging
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import nn

from blockswarm_services.server.device import usable_device
from blockswarm_services.server.kv import LegCache
from blockswarm_services.server.view import Inert, RangeView
from blockswarm_wire.errors import InvalidArgument, ServerFault, WrongSpan
from blockswarm_wire.model.anatomy import Cut, load_part, locate, model_class, part_class, read_config
from blockswarm_wire.model.identity import Progress
from blockswarm_wire.model.linear import share_linears
from blockswarm_wire.model.source import ModelFolder
from blockswarm_wire.span import Span

logger = logging.getLogger(__name__)


class SpanModel:
    """Blocks `span` of a model, weights frozen. One thread at a time.

    Attributes:
        span: the blocks it holds.
        model_blocks: number of blocks of the whole model.
        hidden_size: width of the hidden states.
        dtype, device: of weights, hidden states and KV.
        model_type: the family, as config.json names it.
        weight_bytes: bytes of all weights it holds.
        bytes_per_token: KV bytes of one token of one row over all its blocks; 0 if its state does not grow.
        can_truncate: whether a leg can be rolled back.
    """

    def __init__(self, model: Any, span: Span, *, model_blocks: int) -> None:
        anatomy = locate_cut(model)
        self._core: nn.Module = anatomy[0]
        self._layers = anatomy[1]
        self._views: dict[tuple[int, int], RangeView] = {}
        self.span = span
        self.model_blocks = model_blocks
        self.config = model.config
        self.model_type: str = model.config.model_type
        self.hidden_size: int = model.config.hidden_size
        weights = list(model.parameters())
        self.dtype = model.dtype
        self.device = weights[0].device
        self.weight_bytes = sum(weight.nbytes for weight in weights)
        self.can_truncate = self.new_cache().can_truncate
        self.bytes_per_token = self._measure()

    @classmethod
    def load(
        cls,
        folder: ModelFolder,
        span: Span,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        deterministic: bool = True,
        progress: Progress | None = None,
    ) -> Self:
        """Load the blocks of `span` only. Weights that need no conversion stay mapped from their file.

        Args:
            folder: what `open_model` gave.
            span: the blocks; must lie within the model.
            dtype: in which to hold and compute.
            device: where to.
            deterministic: whether outputs shall equal those of the whole model bit for bit, at some cost of speed.
            progress: told (what, bytes done, bytes in all) while files are fetched and read.

        Raises:
            InvalidArgument: files are missing or malformed, the span goes beyond the model, or the device is not there.
            Unsupported: the family cannot be cut into spans.
        """
        where = usable_device(str(device))
        config = read_config(folder)
        blocks = int(config.num_hidden_layers)
        if span.end > blocks:
            raise InvalidArgument(f"blocks {span} go beyond the model: {folder.origin} has {blocks} blocks")
        part = part_class(model_class(config), span_cut(span))
        model = load_part(folder, part, config, dtype=dtype, progress=progress)
        if where.type != "cpu":
            model = model.to(where)
        if not deterministic:
            share_linears(model)
        logger.info("span loaded", extra={"model": folder.name, "blocks": str(span)})
        return cls(model, span, model_blocks=blocks)

    @property
    def num_blocks(self) -> int:
        """Number of blocks it holds."""
        return len(self.span)

    def new_cache(
        self, start: int | None = None, end: int | None = None, *, limit: int | None = None
    ) -> LegCache:
        """An empty cache for a leg on blocks `start`…`end`-1 (default: the whole span).

        Args:
            start, end: part of the span.
            limit: tokens per row that the leg will ever hold.

        Raises:
            WrongSpan: blocks that it does not hold.
        """
        view = self._view(start, end)
        return LegCache(view.config, view.start, limit=limit)

    def forward(
        self,
        hidden: torch.Tensor,
        cache: LegCache,
        *,
        position_ids: torch.Tensor,
        mask: torch.Tensor | None = None,
        prompts: torch.Tensor | None = None,
        prompt_starts: Sequence[int] | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> torch.Tensor:
        """One step of a leg: appends n tokens to its cache. A step that fails leaves the cache as it was.

        Args:
            hidden: [rows, n, hidden_size]; n may be 0. Rows that are padding may hold anything.
            cache: of exactly these blocks.
            position_ids: int64 [rows or 1, n].
            mask: bool [rows, past + n], False = padding; None = no padding anywhere.
            prompts: [blocks, rows or 1, p, hidden_size], added to the first tokens that are not padding.
            prompt_starts: the first such token of the step, one a batch row; None = 0.
            start, end: part of the span (default: the whole span).

        Returns:
            [rows, n, hidden_size]; zero where the row is padding.

        Raises:
            InvalidArgument: shapes or dtype do not fit.
            WrongSpan: blocks that it does not hold.
            ServerFault: the step failed and the cache cannot be restored.
        """
        view = self._view(start, end)
        self._check(hidden, prompts, view)
        rows, count = hidden.shape[0], hidden.shape[1]
        cache.begin(rows)
        if count == 0:
            return hidden
        with torch.inference_mode():
            padding = None if mask is None else ~mask[:, -count:, None]
            try:
                output = view.run(
                    hidden if padding is None else hidden.masked_fill(padding, 0),
                    cache=cache,
                    mask=None if mask is None else mask.to(torch.int64),
                    position_ids=position_ids,
                    prompts=prompts,
                    prompt_starts=None if prompt_starts is None else list(prompt_starts),
                )
            except BaseException as error:
                if not cache.undo():
                    raise ServerFault(f"the step failed half-way and the leg is lost: {error}") from error
                raise
            cache.commit(rows, count)
            return output if padding is None else output.masked_fill(padding, 0)

    def pass_forward(
        self,
        hidden: torch.Tensor,
        prompts: torch.Tensor | None = None,
        *,
        position_ids: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> torch.Tensor:
        """All tokens at once, without a cache; autograd works with respect to `hidden` and `prompts`.

        Args:
            hidden: [rows, n, hidden_size].
            prompts: [blocks, rows or 1, p, hidden_size], added to the first tokens that are not padding.
            position_ids: int64 [rows or 1, n]; None = counted without padding.
            mask: bool [rows, n], False = padding; None = no padding anywhere.
            start, end: part of the span (default: the whole span).

        Returns:
            [rows, n, hidden_size]; zero where the row is padding.

        Raises:
            InvalidArgument: shapes or dtype do not fit.
            WrongSpan: blocks that it does not hold.
        """
        view = self._view(start, end)
        self._check(hidden, prompts, view)
        if hidden.shape[1] == 0:
            return hidden
        if position_ids is None:
            position_ids = positions(mask, hidden.shape[1]).to(hidden.device)
        padding = None if mask is None else ~mask[..., None]
        output = view.run(
            hidden if padding is None else hidden.masked_fill(padding, 0),
            cache=None,
            mask=None if mask is None else mask.to(torch.int64),
            position_ids=position_ids,
            prompts=prompts,
            prompt_starts=None if mask is None else first_real(mask),
        )
        return output if padding is None else output.masked_fill(padding, 0)

    def _view(self, start: int | None, end: int | None) -> RangeView:
        first = self.span.start if start is None else start
        last = self.span.end if end is None else end
        view = self._views.get((first, last))
        if view is None:
            if not self.span.start <= first < last <= self.span.end:
                raise WrongSpan(f"this server holds blocks {self.span}, not {first}:{last}")
            view = self._views[first, last] = RangeView(self._core, self._layers, first, last)
        return view

    def _check(self, hidden: torch.Tensor, prompts: torch.Tensor | None, view: RangeView) -> None:
        if hidden.dim() != 3 or hidden.shape[-1] != self.hidden_size:
            raise InvalidArgument(
                f"hidden has shape {list(hidden.shape)}, must be [rows, tokens, {self.hidden_size}]"
            )
        if hidden.dtype != self.dtype:
            raise InvalidArgument(f"hidden is {hidden.dtype}, this server computes in {self.dtype}")
        if prompts is None:
            return
        blocks = view.end - view.start
        if (
            prompts.dim() != 4
            or prompts.shape[0] != blocks
            or prompts.shape[1] not in (1, hidden.shape[0])
            or prompts.shape[3] != self.hidden_size
        ):
            raise InvalidArgument(
                f"prompts have shape {list(prompts.shape)}, must be "
                f"[{blocks}, 1 or {hidden.shape[0]}, tokens, {self.hidden_size}]"
            )

    def _measure(self) -> int:
        """KV bytes of a token, seen on one that goes through all blocks; it also warms the weights up."""
        cache = self.new_cache(limit=1)
        hidden = torch.zeros(1, 1, self.hidden_size, dtype=self.dtype, device=self.device)
        self.forward(hidden, cache, position_ids=torch.zeros(1, 1, dtype=torch.int64, device=self.device))
        return cache.token_bytes


def positions(mask: torch.Tensor | None, count: int) -> torch.Tensor:
    """int64 [rows or 1, count]: position of each token, padding not counted, as transformers' generate has it.

    Args:
        mask: bool [rows, at least count], False = padding; None = no padding, tokens 0…count-1.
        count: tokens asked for, the last ones of the mask.
    """
    if mask is None:
        return torch.arange(count)[None]
    return (mask.to(torch.int64).cumsum(-1) - 1).clamp(min=0)[:, -count:]


def first_real(mask: torch.Tensor) -> list[int]:
    """For each row of a mask [rows, n], the number of its first entry that is not padding; n if all are."""
    count = mask.shape[1]
    return [int(row.nonzero()[0]) if bool(row.any()) else count for row in mask]


def span_cut(span: Span) -> Cut:
    """Cuts a whole model down to the layers of `span`; everything else that has weights becomes inert."""

    def cut(model: Any) -> None:
        anatomy = locate(model)
        core, layers = anatomy.core_of(model), anatomy.layers_of(model)
        for number in range(anatomy.num_blocks):
            if number not in span:
                del layers._modules[str(number)]
        model.blockswarm_core = (anatomy.core, anatomy.layers)
        parent = model
        for step in anatomy.core.split("."):
            _make_inert(parent, keep=step)
            parent = getattr(parent, step)
        _make_inert(core, keep=anatomy.layers)

    return cut


def locate_cut(model: Any) -> tuple[nn.Module, str]:
    """The core of a model that `span_cut` cut, and the name of its list of layers."""
    path, name = model.blockswarm_core
    return model.get_submodule(path), name


def _make_inert(module: nn.Module, *, keep: str) -> None:
    for name, child in list(module.named_children()):
        if name != keep and any(True for _ in child.parameters()):
            setattr(module, name, Inert(embedding=isinstance(child, nn.Embedding)))
