"""Where a model comes from: a local folder, or a repository of the Hugging Face Hub at a revision."""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from blockswarm_wire import fingerprint as identity
from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.model.identity import Progress, hash_weights

logger = logging.getLogger(__name__)

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack")
_MAX_JSON = 64 * 2**20
# What families call their number of layers.
_BLOCK_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")


class ModelFolder(ABC):
    """The files of one model. Config and index are here at once; shards after `require`.

    Attributes:
        name: label of the model; never part of its identity.
        origin: folder or repository, for messages.
        revision: commit of a repository; None for a folder.
    """

    revision: str | None = None

    def __init__(self, name: str, origin: str) -> None:
        self.name = name
        self.origin = origin

    @abstractmethod
    def path(self, file: str) -> Path:
        """Where `file` lies. A shard is only there after `require`.

        Raises:
            InvalidArgument: the file does not exist; the message names it and what to do.
        """

    @abstractmethod
    def require(self, files: Iterable[str], *, progress: Progress | None = None) -> None:
        """Make these files present. Downloads of a Hub repository go on where they stopped.

        Raises:
            InvalidArgument: a file does not exist, or is not what its sha256 says.
        """

    @abstractmethod
    def listing(self) -> list[str]:
        """Names of all files of the model, without those in sub-folders."""

    @abstractmethod
    def digests(self, files: list[str], *, progress: Progress | None = None) -> dict[str, str]:
        """sha256 of each of these weights files, present or not."""

    @cached_property
    def config(self) -> dict[str, Any]:
        """Contents of config.json."""
        return self.read_json(CONFIG)

    @property
    def num_blocks(self) -> int:
        """Number of transformer blocks that config.json states.

        Raises:
            InvalidArgument: it states none.
        """
        for key in _BLOCK_KEYS:
            value = self.config.get(key)
            if isinstance(value, int) and value > 0:
                return value
        raise InvalidArgument(f"{self.origin}/{CONFIG} does not say how many layers the model has")

    @cached_property
    def weight_map(self) -> dict[str, str] | None:
        """Tensor name → file as the index says; None when all tensors are in one file."""
        if INDEX not in self.listing():
            return None
        table = self.read_json(INDEX).get("weight_map")
        if not isinstance(table, dict) or not table:
            raise InvalidArgument(f"{self.origin}/{INDEX}: `weight_map` is missing: download the index again")
        for tensor, file in table.items():
            if not isinstance(file, str) or Path(file).name != file or not file.endswith(".safetensors"):
                raise InvalidArgument(
                    f"{self.origin}/{INDEX}: tensor {tensor!r} lies in {file!r}, "
                    "which is no .safetensors file of this folder"
                )
        return dict(table)

    @cached_property
    def weight_files(self) -> list[str]:
        """The safetensors files that hold the model, sorted. Other files of the folder do not count.

        Raises:
            InvalidArgument: there is none; pickled weights are never read.
        """
        if self.weight_map is not None:
            return sorted(set(self.weight_map.values()))
        names = self.listing()
        single = [n for n in names if n == SINGLE] or [n for n in names if n.endswith(".safetensors")]
        if len(single) == 1:
            return single
        if single:
            raise InvalidArgument(
                f"{self.origin} has {len(single)} .safetensors files but no {INDEX}: add the index"
            )
        pickles = [n for n in names if n.endswith(_PICKLES)]
        if pickles:
            raise InvalidArgument(
                f"{self.origin} holds only pickled weights ({pickles[0]}), which are never loaded because "
                "they can run code: convert them with save_pretrained, which writes safetensors"
            )
        raise InvalidArgument(f"{self.origin} has no {SINGLE}: is it a model folder?")

    @cached_property
    def weights_id(self) -> str:
        """Identity of the weights: sha256 over the sorted (file, sha256) of all weights files."""
        return self.identify()

    def identify(self, *, progress: Progress | None = None) -> str:
        """`weights_id`, telling `progress` while files are hashed for the first time."""
        value = identity.weights_id(self.digests(self.weight_files, progress=progress))
        self.__dict__["weights_id"] = value
        return value

    def fingerprint(self, dtype: str, quantization: str = "none") -> str:
        """Identity of the model as it is computed with (see blockswarm_wire.fingerprint)."""
        return identity.fingerprint(self.config, self.weights_id, dtype, quantization)

    def read_json(self, file: str) -> dict[str, Any]:
        """Contents of a JSON file of at most 64 MiB that holds an object.

        Raises:
            InvalidArgument: it is missing or something else.
        """
        path = self.path(file)
        try:
            if path.stat().st_size > _MAX_JSON:
                raise InvalidArgument(f"{path} is larger than {_MAX_JSON} bytes: it is no model's {file}")
            data = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            if isinstance(error, InvalidArgument):
                raise
            raise InvalidArgument(f"{path} cannot be read ({error}): download it again") from error
        if not isinstance(data, dict):
            raise InvalidArgument(f"{path} holds no JSON object: download it again")
        return data


class LocalFolder(ModelFolder):
    """A model in a folder of this machine.

    Raises:
        InvalidArgument: the folder or its config.json does not exist.
    """

    def __init__(self, folder: Path, *, name: str | None = None) -> None:
        if not folder.is_dir():
            raise InvalidArgument(f"model folder {folder} does not exist")
        super().__init__(name or folder.resolve().name, str(folder))
        self.folder = folder
        self.path(CONFIG)

    def path(self, file: str) -> Path:
        path = self.folder / file
        if not path.is_file():
            remedy = (
                "a model folder needs one, as save_pretrained writes it"
                if file == CONFIG
                else "download it again, or copy the whole model folder"
            )
            raise InvalidArgument(f"{path} is missing: {remedy}")
        return path

    def require(self, files: Iterable[str], *, progress: Progress | None = None) -> None:
        for file in files:
            self.path(file)

    def listing(self) -> list[str]:
        return sorted(entry.name for entry in self.folder.iterdir() if entry.is_file())

    def digests(self, files: list[str], *, progress: Progress | None = None) -> dict[str, str]:
        return hash_weights(self.folder, files, progress=progress)


def open_model(
    source: str | Path,
    *,
    revision: str | None = None,
    token: str | None = None,
    cache_dir: str | Path | None = None,
    name: str | None = None,
    progress: Progress | None = None,
) -> ModelFolder:
    """Open a model without reading weights.

    Args:
        source: a folder, or a repository id such as "HuggingFaceTB/SmolLM2-135M-Instruct". What exists as a
            folder, or is written like a path (starts with "/", "." or "~"), is a folder.
        revision: branch, tag or commit of a repository; not allowed with a folder.
        token: access token of the Hub; None = the one that `hf auth login` stored, if any.
        cache_dir: where downloads are kept; None = the Hub client's own cache.
        name: label; None = last part of the source.
        progress: told while files are downloaded.

    Raises:
        InvalidArgument: no such folder or repository, or it has no config.json.
    """
    text = str(source)
    if isinstance(source, Path) or text.startswith(("/", ".", "~")) or Path(text).is_dir():
        if revision is not None:
            raise InvalidArgument(
                f"{text} is a folder, which has no revision {revision!r}: drop one of the two"
            )
        return LocalFolder(Path(text).expanduser(), name=name)
    from blockswarm_wire.model.hub import HubFolder

    return HubFolder(text, revision=revision, token=token, cache_dir=cache_dir, name=name, progress=progress)
