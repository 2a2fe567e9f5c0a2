"""Downloading a large file so that an interrupted download goes on where it stopped, also in another process.

The Hub's own client starts a file anew in every process. Here the part that came stays beside the blobs of its cache,
under the file's sha256, and becomes the blob once the sha256 is right.
"""

import logging
import os
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils._fixes import WeakFileLock
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils.tqdm import tqdm as hub_bar

from blockswarm_wire.errors import InvalidArgument
from blockswarm_wire.model.identity import Progress, sha256_of

logger = logging.getLogger(__name__)


class Teller:
    """Adds up bytes for a `Progress`; `bar` is a class that the Hub's client takes for its progress bars."""

    def __init__(self, progress: Progress | None, what: str, total: int) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, 0

    def __call__(self, count: int) -> None:
        self._done += count
        if self._progress is not None and count:
            self._progress(self._what, max(self._done, 0), self._total)

    @property
    def bar(self) -> Any:
        """A progress bar that draws nothing and tells this teller."""
        teller = self

        class Bar(hub_bar):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                teller(int(kwargs.get("initial") or 0))
                super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

            def update(self, n: float | None = 1) -> bool | None:
                teller(int(n or 0))
                return None

        return Bar


def fetch_blob(
    repo: str,
    file: str,
    revision: str,
    blob: Path,
    *,
    sha256: str,
    size: int,
    token: str | None = None,
    tell: Teller,
) -> None:
    """Make `blob` the contents of a repository's file.

    Args:
        repo, file, revision: the file.
        blob: where to; its folder is made.
        sha256, size: what the contents must be.
        token: access token, None = the stored one.
        tell: told the bytes that came, those of an earlier download included.

    Raises:
        InvalidArgument: what came, twice, is something else.
        Exception: the transport's own, when the connection fails for good.
    """
    blob.parent.mkdir(parents=True, exist_ok=True)
    part = blob.with_name(f"{blob.name}.part")
    with WeakFileLock(blob.with_name(f"{blob.name}.lock")):
        for attempt in (1, 2):
            if blob.exists():
                tell(size)
                return
            _go_on(hf_hub_url(repo, file, revision=revision), part, size, token, tell)
            found = sha256_of(part)
            if found == sha256:
                os.replace(part, blob)
                return
            part.unlink()
            tell(-size)
            logger.warning("download has another sha256", extra={"file": file, "attempt": attempt})
    raise InvalidArgument(
        f"{repo}/{file} has sha256 {found}, the Hub states {sha256}: try again; if it stays so, the repository "
        "or what lies between is damaged"
    )


def _go_on(url: str, part: Path, size: int, token: str | None, tell: Teller) -> None:
    """Fetch what `part` lacks."""
    with part.open("ab") as file:
        have = file.tell()
        if have > size:
            file.truncate(0)
            have = 0
        if have:
            logger.info("download goes on", extra={"file": str(part), "bytes": have})
        if have == size:
            tell(size)
            return
        headers = build_hf_headers(token=token)
        # A compressed answer has no byte ranges.
        headers["Accept-Encoding"] = "identity"
        http_get(url, file, resume_size=have, headers=headers, expected_size=size, tqdm_class=tell.bar)
