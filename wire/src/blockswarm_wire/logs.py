"""Structured logs, the same of every process: one JSON object a line on stderr, with whatever `extra` a call gives.

No prompt text, ever.
"""

import json
import logging
import os
import sys
import time

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A log record as one JSON line."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": self._service,
            "event": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(service: str) -> None:
    """Send this process's logs to stderr; $BLOCKSWARM_LOG_LEVEL sets the level (default: INFO)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(service))
    level = os.environ.get("BLOCKSWARM_LOG_LEVEL", "INFO").upper()
    logging.basicConfig(
        level=level if level in logging.getLevelNamesMapping() else "INFO", handlers=[handler], force=True
    )
    for noisy in ("aiohttp", "asyncio", "filelock", "hivemind", "httpx", "huggingface_hub", "kopf"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
