"""Reading some tensors of a safetensors checkpoint, mapped from the file and checked before use."""

import json
import logging
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.model.identity import Progress
from blockswarm_wire.model.source import ModelFolder

logger = logging.getLogger(__name__)

_MAX_HEADER = 100 * 2**20


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies: its file, shape, and size in bytes."""

    file: str
    shape: tuple[int, ...]
    nbytes: int


class Checkpoint:
    """The tensors of a model folder. Shards are opened, on the Hub fetched, only when a tensor needs them."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self._headers: dict[str, dict[str, TensorInfo]] = {}

    @cached_property
    def files(self) -> Mapping[str, str]:
        """Tensor name → file. Reads the index, or the header of the only file."""
        if self.folder.weight_map is not None:
            return self.folder.weight_map
        (file,) = self.folder.weight_files
        self.folder.require([file])
        return dict.fromkeys(self._header(file), file)

    def require(self, names: Iterable[str], *, progress: Progress | None = None) -> None:
        """Make the shards of these tensors present.

        Raises:
            InvalidArgument: a shard is missing; the message names it.
        """
        self.folder.require(sorted({self._file(name) for name in names}), progress=progress)

    def info(self, name: str) -> TensorInfo:
        """Shape and size of a tensor whose shard is present.

        Raises:
            InvalidArgument: no such tensor, or its shard is missing, cut short or malformed.
        """
        file = self._file(name)
        header = self._header(file)
        if name not in header:
            raise InvalidArgument(
                f"{self.folder.path(file)} does not hold tensor {name!r}, though the index says so: "
                "index and shards are of two different downloads, fetch them again"
            )
        return header[name]

    def load(self, names: Iterable[str], *, progress: Progress | None = None) -> dict[str, torch.Tensor]:
        """The tensors, on the CPU, in the checkpoint's dtype, mapped from their file (never write to them).

        Raises:
            InvalidArgument: as `require` and `info` do.
        """
        wanted = list(names)
        self.require(wanted, progress=progress)
        infos = {name: self.info(name) for name in wanted}
        total, done = sum(info.nbytes for info in infos.values()), 0
        tensors: dict[str, torch.Tensor] = {}
        for file in sorted({info.file for info in infos.values()}):
            with self._open(self.folder.path(file)) as shard:
                for name in (n for n, info in infos.items() if info.file == file):
                    tensors[name] = shard.get_tensor(name)
                    done += infos[name].nbytes
                    if progress is not None:
                        progress("loading weights", done, total)
        return tensors

    def _file(self, name: str) -> str:
        try:
            return self.files[name]
        except KeyError:
            raise InvalidArgument(f"{self.folder.origin} holds no tensor {name!r}") from None

    def _header(self, file: str) -> dict[str, TensorInfo]:
        if file not in self._headers:
            self._headers[file] = read_header(self.folder.path(file))
        return self._headers[file]

    @staticmethod
    def _open(path: Path) -> Any:
        try:
            return safe_open(path, framework="pt", device="cpu")
        except (SafetensorError, OSError) as error:
            raise InvalidArgument(f"{path} is no safetensors file ({error}): download it again") from error


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors that a safetensors file says it holds, checked against the file's size.

    Raises:
        InvalidArgument: the file is cut short, has bytes to spare, or its header is malformed.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(size - 8, _MAX_HEADER):
                raise ValueError(f"its header would be {length} bytes long, the file has {size}")
            header = json.loads(file.read(length))
        infos, end = {}, 0
        for name, entry in header.items():
            if name != "__metadata__":
                low, high = entry["data_offsets"]
                infos[name] = TensorInfo(path.name, tuple(entry["shape"]), high - low)
                end = max(end, high)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidArgument(f"{path} is no safetensors file ({error}): download it again") from error
    if size != 8 + length + end:
        raise InvalidArgument(
            f"{path} has {size} bytes and should have {8 + length + end}: it was cut short, download it again"
        )
    return infos
