"""A model in a repository of the Hugging Face Hub, fetched file by file as its parts are needed."""

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.model.download import Teller, fetch_blob
from blockswarm_wire.model.identity import Progress, hash_weights, sha256_of
from blockswarm_wire.model.source import CONFIG, INDEX, ModelFolder

logger = logging.getLogger(__name__)

_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class _File:
    """What the Hub states of a file: bytes, and lower-case hex sha256 if it is a large one."""

    size: int
    sha256: str | None


class HubFolder(ModelFolder):
    """A repository at one commit: branch and tag names are resolved once, so that all files belong together.

    Without a connection the cache serves what it holds of the commit that the revision last was.

    Raises:
        InvalidArgument: there is no such repository, revision or config.json, or it may not be read.
        ConnectionError: the Hub cannot be reached and the cache does not know the revision.
    """

    def __init__(
        self,
        repo: str,
        *,
        revision: str | None = None,
        token: str | None = None,
        cache_dir: str | Path | None = None,
        name: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(name or repo.rsplit("/", 1)[-1], repo)
        self._repo, self._token = repo, token
        self._cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser()
        folder = self._asking(lambda: repo_folder_name(repo_id=repo, repo_type="model"), revision or "main")
        self._store = self._cache / folder
        self._paths: dict[str, Path] = {}
        commit, self._files = self._resolve(revision or "main")
        self.revision: str = commit
        self.require([CONFIG, *([INDEX] if INDEX in self._files else [])], progress=progress)

    def path(self, file: str) -> Path:
        self.require([file])
        return self._paths[file]

    def listing(self) -> list[str]:
        return sorted(self._files)

    def require(self, files: Iterable[str], *, progress: Progress | None = None) -> None:
        wanted = [file for file in files if file not in self._paths]
        for file in wanted:
            if file not in self._files:
                raise InvalidArgument(
                    f"{self.origin} at revision {self.revision} has no file {file}: "
                    "is it a transformers model with safetensors weights?"
                )
        tell = Teller(progress, f"downloading {self.origin}", sum(self._files[file].size for file in wanted))
        for file in wanted:
            self._paths[file] = self._fetch(file, tell)

    def digests(self, files: list[str], *, progress: Progress | None = None) -> dict[str, str]:
        found = {}
        for file in files:
            entry = self._files.get(file)
            if entry is None:
                raise InvalidArgument(f"{self.origin} has no file {file}, though its index names it")
            # The Hub states no sha256 of a small file, which git itself keeps.
            found[file] = entry.sha256 or sha256_of(self.path(file))
        return found

    def _fetch(self, file: str, tell: Teller) -> Path:
        entry = self._files[file]
        if entry.sha256 is not None and entry.size <= constants.MAX_HTTP_DOWNLOAD_SIZE:
            self._large(file, entry.sha256, entry.size, tell)
        path = Path(self._asking(lambda: self._ordinary(file)))
        if entry.sha256 is None:
            tell(entry.size)
        elif entry.size > constants.MAX_HTTP_DOWNLOAD_SIZE and sha256_of(path) != entry.sha256:
            raise InvalidArgument(
                f"{path} does not have the sha256 that the Hub states: delete it and try again"
            )
        return path

    def _large(self, file: str, sha256: str, size: int, tell: Teller) -> None:
        """Put a large file into the cache of the Hub's client, where that looks for it."""
        blob = self._store / "blobs" / sha256
        if blob.exists():
            # Another program may have fetched it, unchecked. The answer is remembered beside the blobs.
            name = f"blobs/{sha256}"
            if hash_weights(self._store, [name])[name] == sha256:
                tell(size)
                return
            logger.warning("damaged file in the cache is fetched again", extra={"file": str(blob)})
            blob.unlink()
        self._asking(
            lambda: fetch_blob(
                self._repo, file, self.revision, blob, sha256=sha256, size=size, token=self._token, tell=tell
            )
        )
        hash_weights(self._store, [f"blobs/{sha256}"])

    def _ordinary(self, file: str) -> str:
        return str(
            hf_hub_download(
                self._repo,
                file,
                revision=self.revision,
                cache_dir=self._cache,
                token=self._token,
                tqdm_class=Teller(None, "", 0).bar,
            )
        )

    def _resolve(self, revision: str) -> tuple[str, dict[str, _File]]:
        """The commit that `revision` is, and its files; from the cache's note when the Hub cannot be reached."""
        note = self._store / f"blockswarm-{revision.replace('/', '--')}.json"
        try:
            info = self._asking(
                lambda: HfApi(token=self._token).model_info(
                    self._repo, revision=revision, files_metadata=True, timeout=_TIMEOUT
                ),
                revision,
            )
        except ConnectionError as error:
            try:
                data = json.loads(note.read_text())
            except (OSError, ValueError):
                raise error from None
            logger.warning("no connection to the Hub, the cache serves", extra={"model": self._repo})
            return data["commit"], {name: _File(*entry) for name, entry in data["files"].items()}
        files = {
            file.rfilename: _File(file.size or 0, file.lfs.sha256 if file.lfs else None)
            for file in info.siblings or ()
            if "/" not in file.rfilename
        }
        note.parent.mkdir(parents=True, exist_ok=True)
        text = {"commit": info.sha, "files": {name: [file.size, file.sha256] for name, file in files.items()}}
        temporary = note.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(text))
        temporary.replace(note)
        return info.sha, files

    def _asking(self, ask: Any, revision: str | None = None) -> Any:
        """Ask the Hub; what it refuses is the caller's mistake, all else a lack of connection."""
        what = f"{self.origin} at revision {revision or self.revision}"
        try:
            return ask()
        except GatedRepoError as error:
            raise InvalidArgument(f"{what} is gated: accept its terms on the Hub and give a token") from error
        except RevisionNotFoundError as error:
            raise InvalidArgument(f"{what} does not exist: the repository has no such revision") from error
        except (RepositoryNotFoundError, HFValidationError) as error:
            raise InvalidArgument(
                f"{what} is not found on the Hub: check the name, or give a token if it is private"
            ) from error
        except InvalidArgument:
            raise
        except EntryNotFoundError as error:
            if isinstance(error, FileNotFoundError):
                raise ConnectionError(f"{what} cannot be fetched and is not in the cache: {error}") from error
            raise InvalidArgument(f"{what} lacks a file: {error}") from error
        except Exception as error:  # the transport's own exceptions differ by version
            raise ConnectionError(f"{what} cannot be fetched from the Hub: {error}") from error
