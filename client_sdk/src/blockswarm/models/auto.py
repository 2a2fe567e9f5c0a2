"""AutoDistributed…: the doors by which users of transformers and Petals come in."""

import contextlib
import weakref
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from blockswarm import loop
from blockswarm.config import ClientConfig
from blockswarm.discovery.choose import open_discovery
from blockswarm.discovery.door import Discovery
from blockswarm.models.find import find_model
from blockswarm.models.layers import RemoteLayers
from blockswarm.models.load import Hollow, hollow_base, hollow_causal, hollow_classifier
from blockswarm.models.prompts import TUNING_MODES, Prompts
from blockswarm.models.remote import RemoteSequential
from blockswarm.models.shell import dress
from blockswarm.routing.manager import RemoteSequenceManager
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.fingerprint import DTYPES
from blockswarm_wire.model.anatomy import read_config
from blockswarm_wire.model.identity import Progress
from blockswarm_wire.model.linear import share_linears
from blockswarm_wire.model.source import ModelFolder, open_model
from blockswarm_wire.tensor import dtype_name, torch_dtype


class AutoDistributedConfig:
    """The transformers config of a model, of a family that can be served in spans."""

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | Path | None = None,
    ) -> Any:
        """Read config.json of a folder or a Hub repository.

        Raises:
            InvalidArgument: no such model. Unsupported: its family cannot be cut into spans.
        """
        return read_config(open_model(model, revision=revision, token=token, cache_dir=cache_dir))


class _AutoDistributed:
    @staticmethod
    def _hollow(folder: ModelFolder, shape: Any, dtype: torch.dtype, progress: Progress | None) -> Hollow:
        raise NotImplementedError

    @classmethod
    def from_pretrained(
        cls,
        model: str | Path,
        *,
        directory: str | None = None,
        initial_peers: Iterable[str] = (),
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | Path | None = None,
        tuning_mode: str | None = None,
        pre_seq_len: int = 0,
        progress: Progress | None = None,
        **settings: Any,
    ) -> Any:
        """The transformers model with its layers in the swarm; only embedding, final norm and head are loaded here.

        Args:
            model: folder or Hub repository; the swarm must serve exactly these weights.
            directory: "host:port" of a directory, several separated by commas; default: $BLOCKSWARM_DIRECTORY.
            initial_peers: multiaddrs of DHT peers, instead of a directory.
            dtype: of the blocks; None takes what the swarm serves.
            revision, token, cache_dir: of the Hub, as in transformers.
            tuning_mode: None, "ptune" (trainable virtual tokens) or "deep_ptune" (in every block).
            pre_seq_len: number of virtual tokens.
            progress: told (what, bytes done, bytes in all) while files are fetched and read.
            settings: fields of ClientConfig, such as allowed_servers, blocked_servers, max_retries; `num_labels` for
                classification.

        Raises:
            InvalidArgument: an unknown setting, no such model folder, or a dtype that is not served.
            ModelNotServed: nobody serves this model; lists what is served.
            Unsupported: the family cannot be cut into spans.
            Unreachable: the swarm did not answer within connect_timeout.
        """
        _check_tuning(tuning_mode, pre_seq_len)
        labels = settings.pop("num_labels", None)
        config = _client_config(directory, initial_peers, dtype, settings)
        folder = open_model(model, revision=revision, token=token, cache_dir=cache_dir, progress=progress)
        shape = read_config(folder)
        if labels is not None:
            shape.num_labels = labels
        manager, discovery = _connect(folder, shape, config)
        hollow = cls._hollow(folder, shape, torch_dtype(str(manager.config.dtype)), progress)
        if not config.deterministic:
            share_linears(hollow.model)
        shell = _assemble(hollow, manager, tuning_mode, pre_seq_len)
        weakref.finalize(shell, _abandon, manager, discovery).atexit = False
        return shell


class AutoDistributedModelForCausalLM(_AutoDistributed):
    """Models that generate text."""

    @staticmethod
    def _hollow(folder: ModelFolder, shape: Any, dtype: torch.dtype, progress: Progress | None) -> Hollow:
        return hollow_causal(folder, shape, dtype, progress)


class AutoDistributedModel(_AutoDistributed):
    """Base models, without a head: last hidden states."""

    @staticmethod
    def _hollow(folder: ModelFolder, shape: Any, dtype: torch.dtype, progress: Progress | None) -> Hollow:
        return hollow_base(folder, shape, dtype, progress)


class AutoDistributedModelForSequenceClassification(_AutoDistributed):
    """Base models with a local, trainable classifier; give num_labels."""

    @staticmethod
    def _hollow(folder: ModelFolder, shape: Any, dtype: torch.dtype, progress: Progress | None) -> Hollow:
        return hollow_classifier(folder, shape, dtype, progress)


def _client_config(
    directory: str | None,
    initial_peers: Iterable[str],
    dtype: str | torch.dtype | None,
    settings: dict[str, Any],
) -> ClientConfig:
    known = {field.name for field in fields(ClientConfig)} - {"directory", "initial_peers", "dtype"}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise InvalidArgument(
            f"unknown argument {unknown[0]!r}; besides those of transformers' from_pretrained that make sense here, "
            f"known are {', '.join(sorted(known))}"
        )
    if isinstance(dtype, torch.dtype):
        dtype = dtype_name(dtype)
    if dtype is not None and dtype != "auto" and dtype not in DTYPES:
        raise InvalidArgument(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return ClientConfig(
        directory=directory,
        initial_peers=initial_peers if isinstance(initial_peers, str) else tuple(initial_peers),  # type: ignore[arg-type]
        dtype=None if dtype == "auto" else dtype,
        **settings,
    )


def _connect(
    folder: ModelFolder, shape: Any, config: ClientConfig
) -> tuple[RemoteSequenceManager, Discovery]:
    """Find the model in the swarm. The manager's config says in which dtype it is served."""
    own = dtype_name(shape.dtype) if isinstance(shape.dtype, torch.dtype) else str(shape.dtype)
    order = sorted(DTYPES, key=lambda name: name != own)
    fingerprints = {name: folder.fingerprint(name) for name in order}

    async def work() -> tuple[RemoteSequenceManager, Discovery]:
        discovery = open_discovery(config)
        try:
            entry, found = await find_model(
                discovery, folder.name, fingerprints, dtype=config.dtype, timeout=config.connect_timeout
            )
        except BaseException:
            await discovery.close()
            raise
        return RemoteSequenceManager(discovery, entry, config=replace(config, dtype=found)), discovery

    return loop.run(work())


def _assemble(
    hollow: Hollow, manager: RemoteSequenceManager, tuning_mode: str | None, pre_seq_len: int
) -> Any:
    config = hollow.core.config
    remote = RemoteSequential(config, manager)
    prompts = None
    if tuning_mode is not None:
        prompts = Prompts(tuning_mode, pre_seq_len, config.hidden_size, len(remote))
    else:
        hollow.model.requires_grad_(True)  # as transformers does; with prompts, only those are trained
    layers = RemoteLayers(remote, prompts, as_tuple=hollow.as_tuple)
    hollow.fill(layers)
    return dress(hollow.model, hollow.core, layers)


def _check_tuning(tuning_mode: str | None, pre_seq_len: int) -> None:
    if tuning_mode is not None and tuning_mode not in TUNING_MODES:
        raise InvalidArgument(f"tuning_mode {tuning_mode!r} is not one of {', '.join(TUNING_MODES)} or None")
    if (tuning_mode is None) != (pre_seq_len == 0):
        raise InvalidArgument("tuning_mode and pre_seq_len go together: give both, or neither")


def _abandon(manager: RemoteSequenceManager, discovery: Discovery) -> None:
    """End the background work of a model that is not used any more."""

    async def work() -> None:
        await manager.close()
        await discovery.close()

    with contextlib.suppress(RuntimeError):  # after a fork, or at the end of the process
        loop.submit(work())
