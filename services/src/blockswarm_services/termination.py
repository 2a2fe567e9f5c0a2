"""Last words of a process: Kubernetes shows what a container wrote to its termination message file."""

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)

_DEFAULT = "/dev/termination-log"
_MAX_BYTES = 4096


def write_termination_message(message: str) -> None:
    """Write `message` where Kubernetes looks, if this is a container that has the file; else only log it."""
    path = Path(os.environ.get("BLOCKSWARM_TERMINATION_LOG", _DEFAULT))
    logger.error("process ends: %s", message)
    if not path.exists():
        return
    try:
        path.write_bytes(message.encode()[:_MAX_BYTES])
    except OSError as error:
        logger.warning("cannot write the termination message: %s", error)
