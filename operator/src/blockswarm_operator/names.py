"""The labels and names by which the operator finds what belongs together, and the hashes behind them."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from blockswarm_wire.span import Span

MANAGER = "blockswarm-operator"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
NAME = "app.kubernetes.io/name"
BLOCK_SERVER = "blockswarm.io/blockserver"
SPAN_GROUP = "blockswarm.io/span-group"
MODEL = "blockswarm.io/model"
TEMPLATE = "blockswarm.io/template"
APPLIED = "blockswarm.io/applied"
CONTAINER = "server"
OWN_LABELS = (NAME, MANAGED_BY, PART_OF, BLOCK_SERVER, MODEL, SPAN_GROUP)
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
SELECTOR = f"{MANAGED_BY}={MANAGER}"


def digest(data: Any) -> str:
    """Ten hex digits that stand for plain data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def model_id(namespace: str, spec: Mapping[str, Any]) -> str:
    """Stands for the model that a spec asks for: servers of one id are interchangeable block by block."""
    return digest([namespace, spec["model"], spec["dtype"], spec["quantization"]])


def span_group(model: str, span: Span) -> str:
    """Stands for one span of one model: its servers share one disruption budget."""
    return digest([model, span.start, span.end])


def budget_name(group: str) -> str:
    """Name of a span group's PodDisruptionBudget."""
    return f"bs-{group}"
