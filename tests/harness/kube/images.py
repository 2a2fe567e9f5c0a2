"""The images under test: built from the repository, loaded into the nodes, and built anew only when they changed."""

import hashlib
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kube.cluster import REPOSITORY, Cluster

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
        if known.get(part) != state:
            cluster.build_and_load(name, f"Dockerfile.{part}")
            known[part] = state
            note.write_text(json.dumps(known))
        made[part] = Image(cluster.image(name), digest)
    return made


def _digest(part: str) -> str:
    paths = [f"Dockerfile.{part}", ".dockerignore", "constraints.txt", "scripts/image-layer", *PARTS[part]]
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *paths]
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
