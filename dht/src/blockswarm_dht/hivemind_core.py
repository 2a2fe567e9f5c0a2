"""The few parts of hivemind that we use, imported without the rest of it.

hivemind's package `__init__` files import its training code, and with it torch: about 200 MB that a directory has no
use for. The modules behind a DHT node need none of it. So while they are imported, three empty packages stand in for
`hivemind`, `hivemind.dht` and `hivemind.utils`; afterwards the stand-ins are removed, and a later `import hivemind`
elsewhere in the process works as usual.
"""

import contextlib
import importlib
import importlib.machinery
import importlib.resources
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any

_STAND_INS = ("hivemind", "hivemind.dht", "hivemind.utils")


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    if "hivemind" in sys.modules:
        yield
        return
    spec = importlib.util.find_spec("hivemind")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "hivemind is not installed; install blockswarm-dht, which depends on hivemind==1.1.12"
        )
    root = next(iter(spec.submodule_search_locations))
    try:
        for name in _STAND_INS:
            module = types.ModuleType(name)
            path = "/".join([root, *name.split(".")[1:]])
            module.__path__ = [path]
            module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
            sys.modules[name] = module
        _fill(sys.modules["hivemind.utils"])
        yield
    finally:
        for name in _STAND_INS:
            sys.modules.pop(name, None)


def _fill(package: types.ModuleType) -> None:
    """Give the stand-in of hivemind.utils the names that hivemind.dht and hivemind.p2p take from it."""
    for module, names in {
        "hivemind.utils.logging": ("get_logger", "use_hivemind_log_handler"),
        "hivemind.utils.serializer": ("MSGPackSerializer", "SerializerBase"),
        "hivemind.utils.timed_storage": (
            "TimedStorage",
            "ValueWithExpiration",
            "DHTExpiration",
            "get_dht_time",
        ),
    }.items():
        loaded = importlib.import_module(module)
        for name in names:
            setattr(package, name, getattr(loaded, name))


with _stand_ins():
    _node = importlib.import_module("hivemind.dht.node")
    _storage = importlib.import_module("hivemind.dht.storage")
    _crypto = importlib.import_module("hivemind.dht.validation")
    _routing = importlib.import_module("hivemind.dht.routing")
    _p2p = importlib.import_module("hivemind.p2p")
    _p2pclient = importlib.import_module("hivemind.p2p.p2p_daemon_bindings.p2pclient")
    _programs = importlib.import_module("hivemind.hivemind_cli")
    _logging = importlib.import_module("hivemind.utils.logging")
    _serializer = importlib.import_module("hivemind.utils.serializer")
    _multiaddr = importlib.import_module("hivemind.utils.multiaddr")

# hivemind carries no type information, so these are Any; `Any` as a base class needs the explicit annotation.
DHTNode: Any = _node.DHTNode
DHTLocalStorage: Any = _storage.DHTLocalStorage
DictionaryDHTValue: Any = _storage.DictionaryDHTValue
RecordValidatorBase: Any = _crypto.RecordValidatorBase
DHTID: Any = _routing.DHTID
P2P: Any = _p2p.P2P
PeerID: Any = _p2p.PeerID
P2PClient: Any = _p2pclient.Client
P2PDaemonError: Any = _p2p.P2PDaemonError
MSGPackSerializer: Any = _serializer.MSGPackSerializer
Multiaddr: Any = _multiaddr.Multiaddr

# The file of the daemon, and the level of its log lines in Go's words.
P2PD = str(importlib.resources.files(_programs) / "p2pd")
GOLOG_LEVEL: str = _logging.python_level_to_golog(_logging.loglevel)

# Its log lines go where ours go, instead of to a handler of its own; its INFO lines say nothing that ours do not.
_logging.use_hivemind_log_handler("nowhere")
_logging.get_logger("hivemind").setLevel("WARNING")
