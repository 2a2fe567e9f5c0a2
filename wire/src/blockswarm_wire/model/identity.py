"""What a folder's weights are, kept beside them in `blockswarm.json`, so that they are hashed only once."""

import contextlib
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from blockswarm_wire.errors import InvalidArgument

logger = logging.getLogger(__name__)

NOTE = "blockswarm.json"
_VERSION = 1
_PIECE = 2**22

# Told (what is being done, bytes done, bytes in all) from the calling thread.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as it was hashed: lower-case hex `sha256`, `size` in bytes, `mtime_ns`."""

    sha256: str
    size: int
    mtime_ns: int


def read_note(folder: Path) -> dict[str, Entry]:
    """The entries of `blockswarm.json`; empty when there is none or it cannot be used."""
    try:
        data = json.loads((folder / NOTE).read_text())
        if data["version"] != _VERSION:
            return {}
        return {
            str(name): Entry(str(e["sha256"]), int(e["size"]), int(e["mtime_ns"]))
            for name, e in data["weights"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        logger.warning("weights note ignored", extra={"file": str(folder / NOTE), "cause": str(error)})
        return {}


def write_note(folder: Path, entries: Mapping[str, Entry]) -> bool:
    """Write `blockswarm.json` at once or not at all; False where the folder cannot be written."""
    weights = {name: asdict(entry) for name, entry in sorted(entries.items())}
    text = json.dumps({"version": _VERSION, "weights": weights}, indent=1) + "\n"
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{NOTE}-", dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, folder / NOTE)
    except OSError as error:
        logger.info("weights note not written", extra={"folder": str(folder), "cause": str(error)})
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


def sha256_of(path: Path, *, tell: Callable[[int], None] | None = None) -> str:
    """Lower-case hex sha256 of a file. `tell` gets the bytes of every piece read."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            if tell is not None:
                tell(len(piece))
    return digest.hexdigest()


def hash_weights(folder: Path, names: list[str], *, progress: Progress | None = None) -> dict[str, str]:
    """sha256 of each weights file of a folder, from the note where size and mtime still agree.

    A file that is absent counts only if the note knows it: such a folder holds a part of the model, and the
    note came with it.

    Raises:
        InvalidArgument: a file is absent and the note does not know it.
    """
    known = read_note(folder)
    entries: dict[str, Entry] = {}
    stale: list[tuple[str, os.stat_result]] = []
    for name in names:
        try:
            stat = (folder / name).stat()
        except FileNotFoundError:
            if name not in known:
                raise InvalidArgument(
                    f"weights file {folder / name} is missing: download it again, or copy the whole folder"
                ) from None
            entries[name] = known[name]
            continue
        entry = known.get(name)
        if entry is not None and (entry.size, entry.mtime_ns) == (stat.st_size, stat.st_mtime_ns):
            entries[name] = entry
        else:
            stale.append((name, stat))
    if stale:
        entries.update(_hash_stale(folder, stale, progress))
        write_note(folder, entries)
    return {name: entries[name].sha256 for name in names}


def _hash_stale(
    folder: Path, stale: list[tuple[str, os.stat_result]], progress: Progress | None
) -> dict[str, Entry]:
    total, done = sum(stat.st_size for _, stat in stale), 0

    def tell(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress("hashing weights", done, total)

    logger.info("hashing weights", extra={"folder": str(folder), "files": len(stale), "bytes": total})
    return {
        name: Entry(sha256_of(folder / name, tell=tell), stat.st_size, stat.st_mtime_ns)
        for name, stat in stale
    }
