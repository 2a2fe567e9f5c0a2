"""Which door a client's settings name."""

from blockswarm.config import ClientConfig
from blockswarm.discovery.door import Discovery


def open_discovery(config: ClientConfig) -> Discovery:
    """The DHT when `initial_peers` is set, else the directories. The caller closes it.

    Raises:
        InvalidArgument: the settings and the environment name no swarm.
    """
    if config.initial_peers:
        from blockswarm.discovery.dht import DhtDiscovery

        return DhtDiscovery(config.initial_peers)
    from blockswarm.discovery.directory import DirectoryDiscovery

    return DirectoryDiscovery(config.targets())
