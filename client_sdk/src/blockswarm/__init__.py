"""BlockSwarm's client: run large language models over a swarm of block servers.

Names are imported when they are first used, so that `import blockswarm` costs neither torch nor transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blockswarm.config import ClientConfig as ClientConfig
    from blockswarm.models.auto import AutoDistributedConfig as AutoDistributedConfig
    from blockswarm.models.auto import AutoDistributedModel as AutoDistributedModel
    from blockswarm.models.auto import AutoDistributedModelForCausalLM as AutoDistributedModelForCausalLM
    from blockswarm.models.auto import (
        AutoDistributedModelForSequenceClassification as AutoDistributedModelForSequenceClassification,
    )
    from blockswarm.models.remote import RemoteSequential as RemoteSequential
    from blockswarm.routing.hop import MissingBlocks as MissingBlocks
    from blockswarm.routing.manager import RemoteSequenceManager as RemoteSequenceManager
    from blockswarm.session import AsyncInferenceSession as AsyncInferenceSession
    from blockswarm.session import InferenceSession as InferenceSession
    from blockswarm.session import SessionLost as SessionLost
    from blockswarm_wire.errors import BlockSwarmError as BlockSwarmError
    from blockswarm_wire.errors import CallerError as CallerError
    from blockswarm_wire.errors import CapacityError as CapacityError
    from blockswarm_wire.errors import InvalidArgument as InvalidArgument
    from blockswarm_wire.errors import LostError as LostError
    from blockswarm_wire.errors import MaxLengthExceeded as MaxLengthExceeded
    from blockswarm_wire.errors import Unsupported as Unsupported

__version__ = "0.1.0"

_HOME = {
    "AsyncInferenceSession": "blockswarm.session",
    "AutoDistributedConfig": "blockswarm.models.auto",
    "AutoDistributedModel": "blockswarm.models.auto",
    "AutoDistributedModelForCausalLM": "blockswarm.models.auto",
    "AutoDistributedModelForSequenceClassification": "blockswarm.models.auto",
    "BlockSwarmError": "blockswarm_wire.errors",
    "CallerError": "blockswarm_wire.errors",
    "CapacityError": "blockswarm_wire.errors",
    "ClientConfig": "blockswarm.config",
    "InferenceSession": "blockswarm.session",
    "InvalidArgument": "blockswarm_wire.errors",
    "LostError": "blockswarm_wire.errors",
    "MaxLengthExceeded": "blockswarm_wire.errors",
    "MissingBlocks": "blockswarm.routing.hop",
    "RemoteSequenceManager": "blockswarm.routing.manager",
    "RemoteSequential": "blockswarm.models.remote",
    "SessionLost": "blockswarm.session",
    "Unsupported": "blockswarm_wire.errors",
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
