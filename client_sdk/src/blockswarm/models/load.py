"""The client's part of a model: its transformers class with nothing where the layers were, and the weights around."""

from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, MODEL_MAPPING

from blockswarm_wire.errors import Unsupported
from blockswarm_wire.model.anatomy import Anatomy, load_part, locate, model_class, part_class, skeleton
from blockswarm_wire.model.identity import Progress
from blockswarm_wire.model.source import ModelFolder

# Families whose layers answer with a tuple, of which the base model takes the first.
_TUPLES = frozenset({"bloom", "falcon", "mpt"})


class Hollow:
    """A model whose list of layers is gone.

    model: the transformers model, weights outside the layers loaded.
    core: the module in it that runs the layers.
    layers: name of the empty list in `core`.
    """

    def __init__(self, model: Any, core: Any, layers: str) -> None:
        self.model = model
        self.core = core
        self.layers = layers

    @property
    def as_tuple(self) -> bool:
        """Whether the module that fills it must answer with a tuple."""
        return self.core.config.model_type in _TUPLES

    def fill(self, layers: nn.Module) -> None:
        """Put one module where the layers were."""
        setattr(self.core, self.layers, nn.ModuleList([layers]))


def hollow_causal(folder: ModelFolder, config: Any, dtype: torch.dtype, progress: Progress | None) -> Hollow:
    """The class for causal language modelling."""
    hollow = _hollow(model_class(config), folder, config, dtype, progress)
    if "generation_config.json" in folder.listing():
        hollow.model.generation_config = GenerationConfig.from_dict(
            folder.read_json("generation_config.json")
        )
    return hollow


def hollow_base(folder: ModelFolder, config: Any, dtype: torch.dtype, progress: Progress | None) -> Hollow:
    """The base class, without a head."""
    return _hollow(MODEL_MAPPING[type(config)], folder, config, dtype, progress)


def hollow_classifier(
    folder: ModelFolder, config: Any, dtype: torch.dtype, progress: Progress | None
) -> Hollow:
    """The class for sequence classification. Its `score` starts from random numbers: it is there to be trained.

    Raises:
        Unsupported: the family has none.
    """
    try:
        cls = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    except KeyError:
        raise Unsupported(f"transformers has no sequence classification for {config.model_type!r}") from None
    inner = hollow_base(folder, config, dtype, progress)
    model = skeleton(part_class(cls, _Cut()), config, dtype)
    setattr(model, model.base_model_prefix, inner.model)
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        if own and own[0].is_meta:
            if not isinstance(module, nn.Linear):
                raise Unsupported(
                    f"{cls.__name__} has a {type(module).__name__} {name!r} besides its base model"
                )
            module.to_empty(device="cpu")
            nn.init.normal_(module.weight, std=getattr(config, "initializer_range", 0.02))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return Hollow(model.eval(), inner.core, inner.layers)


def _hollow(
    cls: type[Any], folder: ModelFolder, config: Any, dtype: torch.dtype, progress: Progress | None
) -> Hollow:
    cut = _Cut()
    model = load_part(folder, part_class(cls, cut), config, dtype=dtype, progress=progress)
    return Hollow(model, cut.anatomy.core_of(model), cut.anatomy.layers)


class _Cut:
    """Takes all layers away, and remembers where they were: without them nobody can tell."""

    anatomy: Anatomy

    def __call__(self, model: Any) -> None:
        self.anatomy = locate(model)
        setattr(self.anatomy.core_of(model), self.anatomy.layers, nn.ModuleList())
