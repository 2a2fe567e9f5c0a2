"""The images under test: built from the repository, loaded into the nodes, and built anew only when they changed."""

import hashlib
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kube.cluster import REPOSITORY, Cluster
from kube.kubectl import CommandError

# A build reaches the network for Debian's and Python's packages.
_TRIES = 3
_PAUSE_SECONDS = 5.0
# Image → what goes into it.
PARTS = {
    "server": ("wire", "dht", "services"),
    "operator": ("wire", "operator"),
    "client": ("wire", "client_sdk"),
}


@dataclass(frozen=True)
class Image:
    """An image that the nodes have. `digest` stands for what it was built from."""

    name: str
    digest: str


def build_images(cluster: Cluster) -> dict[str, Image]:
    """Build and load all images, by part. A kept cluster has those that have not changed since."""
    note = cluster.home / "images.json"
    known = json.loads(note.read_text()) if cluster.keep and note.exists() else {}
    made = {}
    for part in PARTS:
        name = f"blockswarm.test/{part}:dev"
        digest = _digest(part)
        # A cluster that was made anew has no images, whatever the note says.
        state = [digest, _identity(cluster)]
        if known.get(part) == state:
            cluster.say(f"image {name}: unchanged")
        else:
            _build(cluster, name, f"Dockerfile.{part}")
            known[part] = state
            note.write_text(json.dumps(known))
        made[part] = Image(cluster.image(name), digest)
    return made


def _build(cluster: Cluster, name: str, dockerfile: str) -> None:
    for last in (*[False] * (_TRIES - 1), True):
        cluster.say(f"image {name}: building, and loading into the nodes")
        began = time.monotonic()
        try:
            cluster.build_and_load(name, dockerfile)
        except CommandError as error:
            failed = f"image {name}: failed after {time.monotonic() - began:.0f} s: {error}"
            if last:
                pytest.fail(failed, pytrace=False)
            cluster.say(f"{failed}\nimage {name}: once more in {_PAUSE_SECONDS:.0f} s")
            time.sleep(_PAUSE_SECONDS)
        else:
            cluster.say(f"image {name}: in the nodes after {time.monotonic() - began:.0f} s")
            return


def _digest(part: str) -> str:
    paths = [f"Dockerfile.{part}", ".dockerignore", "constraints.txt", "scripts/image-layer", *PARTS[part]]
    # As root in somebody else's checkout, git would refuse.
    git = ["git", "-c", "safe.directory=*"]
    words = [*git, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths]
    listed = subprocess.run(words, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    total = hashlib.sha256()
    for name in sorted(set(filter(None, listed.split("\0")))):
        file: Path = REPOSITORY / name
        if file.is_file():
            total.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:12]


def _identity(cluster: Cluster) -> str:
    uid: str = cluster.kubectl.get("namespace", "kube-system")["metadata"]["uid"]
    return uid
