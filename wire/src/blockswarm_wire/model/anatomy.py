"""Building a part of a transformers model: its skeleton, what to cut away, which tensors to load.

The whole class is built on the meta device, so that layer numbers, layer types and tables stay the model's
business; then the parts that are not ours are cut away, and transformers' own loading fills the rest (its
conversions of fused experts included). Layers keep their numbers: tensor names never change.
"""

import copy
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.utils import logging as transformers_logging

from blockswarm_wire.errors import InvalidArgument, Unsupported
from blockswarm_wire.model.checkpoint import Checkpoint
from blockswarm_wire.model.families import check_family
from blockswarm_wire.model.identity import Progress
from blockswarm_wire.model.source import ModelFolder

logger = logging.getLogger(__name__)

# A transformers model (its classes carry no types).
Model = Any
Cut = Callable[[Model], None]
_LAYER_LISTS = ("layers", "h", "blocks")


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Where a causal language model keeps its layers.

    Attributes:
        core: path of the module that runs the layers, such as "model" or "model.decoder".
        layers: name of the list of layers in it, such as "layers" or "h".
        num_blocks: number of layers.
    """

    core: str
    layers: str
    num_blocks: int

    def core_of(self, model: Model) -> nn.Module:
        """The module that runs the layers."""
        core: nn.Module = model.get_submodule(self.core)
        return core

    def layers_of(self, model: Model) -> nn.ModuleList:
        """The list of layers."""
        layers = getattr(self.core_of(model), self.layers)
        assert isinstance(layers, nn.ModuleList)
        return layers


def read_config(folder: ModelFolder) -> Any:
    """The transformers config of a model. No code of the folder is run.

    Raises:
        Unsupported: the family cannot be cut.
        InvalidArgument: config.json does not fit its family.
    """
    family = check_family(folder.config)
    try:
        config = CONFIG_MAPPING[family].from_dict(copy.deepcopy(folder.config))
    except Exception as error:  # transformers validates with many kinds of exception
        raise InvalidArgument(f"{folder.origin}/config.json is not valid for {family!r}: {error}") from error
    config.name_or_path = folder.origin
    return config


def model_class(config: Any) -> type[Any]:
    """The transformers class for causal language modelling of this config."""
    try:
        found: type[Any] = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    except KeyError:
        raise Unsupported(f"transformers has no causal language model for {config.model_type!r}") from None
    return found


def locate(model: Model) -> Anatomy:
    """Where this model keeps its layers.

    Raises:
        Unsupported: it has no single list of layers.
    """
    core = model.base_model
    if isinstance(getattr(getattr(core, "decoder", None), "layers", None), nn.ModuleList):
        core = core.decoder
    paths = [path for path, module in model.named_modules() if module is core]
    for name in _LAYER_LISTS:
        layers = getattr(core, name, None)
        if isinstance(layers, nn.ModuleList) and len(layers) == model.config.num_hidden_layers and paths:
            return Anatomy(paths[0], name, len(layers))
    raise Unsupported(f"{type(model).__name__} keeps its layers in an unknown place")


def part_class(cls: type[Any], cut: Cut) -> type[Any]:
    """`cls` whose every new instance is cut by `cut` before weights are loaded.

    It keeps the name and module of `cls`, by which transformers chooses the conversions of a checkpoint.
    """

    def __init__(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        cls.__init__(self, config, *args, **kwargs)
        cut(self)
        _forget_tied(self)

    return type(cls.__name__, (cls,), {"__init__": __init__, "__module__": cls.__module__})


def skeleton(cls: type[Any], config: Any, dtype: torch.dtype) -> Model:
    """An instance of `cls` whose parameters and buffers have shapes but no memory."""
    with _quiet():
        contexts = cls.get_init_context(dtype, False, False, False)
        with ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context)
            return cls(copy.deepcopy(config))


def targets(model: Model, names: list[str]) -> dict[str, tuple[str, bool]]:
    """Checkpoint tensor → (parameter or buffer of `model` it goes to, whether it is converted on the way).

    Tensors that `model` has no place for are left out.
    """
    state = model.state_dict()
    conversions = get_model_conversion_mapping(model)
    renamings = [c for c in conversions if isinstance(c, WeightRenaming)]
    converters = [c for c in conversions if isinstance(c, WeightConverter)]
    prefix = model.base_model_prefix
    found = {}
    for name in names:
        target, source = rename_source_key(name, renamings, converters, prefix, state)
        if target not in state and name in state:
            target, source = name, None
        if target in state:
            found[name] = (target, source is not None)
    return found


def load_part(
    folder: ModelFolder,
    cls: type[Any],
    config: Any,
    *,
    dtype: torch.dtype,
    progress: Progress | None = None,
) -> Model:
    """An instance of a class made by `part_class`, with exactly its tensors loaded, frozen, in eval mode.

    Weights whose dtype is already `dtype` stay mapped from their file.

    Raises:
        InvalidArgument: a tensor or a shard is missing, cut short or of another shape; the message names it.
    """
    checkpoint = Checkpoint(folder)
    empty = skeleton(cls, config, dtype)
    wanted = targets(empty, list(checkpoint.files))
    checkpoint.require(wanted, progress=progress)
    _check_shapes(checkpoint, empty, wanted)
    tensors = checkpoint.load(wanted, progress=progress)
    with _quiet():
        try:
            model, report = cls.from_pretrained(
                None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
            )
        except (RuntimeError, ValueError) as error:
            message = f"the weights in {folder.origin} do not fit its config.json: {error}"
            raise InvalidArgument(message) from error
    _check_report(folder, model, report)
    return model.requires_grad_(False).eval()


def _forget_tied(model: Model) -> None:
    """Ties between parameters of which one was cut away do not exist any more."""
    state = model.state_dict()
    model.all_tied_weights_keys = {
        target: source
        for target, source in model.all_tied_weights_keys.items()
        if target in state and source in state
    }


def _check_shapes(checkpoint: Checkpoint, model: Model, wanted: dict[str, tuple[str, bool]]) -> None:
    state = model.state_dict()
    for name, (target, converted) in wanted.items():
        info = checkpoint.info(name)
        if not converted and info.shape != tuple(state[target].shape):
            raise InvalidArgument(
                f"{checkpoint.folder.path(info.file)}: tensor {name!r} has shape {list(info.shape)}, "
                f"config.json asks for {list(state[target].shape)}: they are of two different models"
            )


def _check_report(folder: ModelFolder, model: Model, report: dict[str, Any]) -> None:
    tied = set(model.all_tied_weights_keys)
    missing = sorted(key for key in report["missing_keys"] if key not in tied)
    wrong = sorted(str(key) for key in report["mismatched_keys"])
    if missing or wrong:
        raise InvalidArgument(
            f"the weights in {folder.origin} lack {missing[:3]} or hold them in other shapes {wrong[:3]}: "
            "config and weights are of two different models, download them again"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' own bars and reports: what goes wrong is raised here, with the file's name."""
    bars = transformers_logging.is_progress_bar_enabled()
    level = transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
