"""Which servers hold each block: this cluster's pods joined with their nodes and with what the directory knows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from blockswarm_operator.observed import Node, Pod
from blockswarm_wire.record import ServerView, State
from blockswarm_wire.span import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A pod with its span and what is known of it.

    `view`: None = the directory does not know it. `stranded`: it announces itself to another directory than ours, where
    the chart was before, and never comes to ours: a successor must.
    """

    pod: Pod
    span: Span
    node: Node
    view: ServerView | None = None
    stranded: bool = False

    @property
    def online(self) -> bool:
        """Whether it serves and will go on serving: said by the directory and by the API."""
        state = self.view.state if self.view is not None and self.view.record is not None else None
        # DRAINING may be our own statement about a cordoned node: such a server still serves.
        said = state is State.ONLINE or (state is State.DRAINING and not self._draining_itself)
        return said and self._stays

    @property
    def serves(self) -> bool:
        """Whether sessions may rely on it: it is online, or it is stranded and those that know it use it."""
        return self.online or (self.stranded and self._stays)

    @property
    def wavers(self) -> bool:
        """Whether a probe of it failed, or nothing is heard of its node, while it says itself that it is ONLINE.

        It may be back at once, so it must not be taken for broken; nor may it stand in for another one. A record ends
        after 30 s, and this with it.
        """
        said = self.view is not None and self.view.record is not None and self.view.state is State.ONLINE
        return (
            said and self.pod.started and not self.pod.ready and not self.pod.deleting and not self.pod.gone
        )

    @property
    def cordoned(self) -> bool:
        """Whether its node takes no new pods."""
        return self.node.cordoned

    @property
    def lost(self) -> bool:
        """Whether nothing is heard of its node."""
        return self.node.ready == "Unknown"

    @property
    def sessions(self) -> int:
        """Sessions that it says it has open."""
        return self.view.record.sessions if self.view is not None and self.view.record is not None else 0

    @property
    def _stays(self) -> bool:
        return self.pod.ready and not self.pod.deleting and not self.pod.gone

    @property
    def _draining_itself(self) -> bool:
        assert self.view is not None
        return self.view.record is not None and self.view.record.state is State.DRAINING


def join(
    pods: Iterable[Pod],
    spans: Mapping[str, Span],
    nodes: Mapping[str, Node],
    views: Mapping[str, ServerView],
    *,
    directory: str,
) -> list[Server]:
    """The servers of one model.

    Args:
        pods: of the model.
        spans: BlockServer name → span; pods of others are left out.
        nodes: by name; a pod whose node is gone counts as lost.
        views: by server id, which is the pod's uid.
        directory: the target that servers shall announce themselves to.
    """
    return [
        Server(
            pod=pod,
            span=spans[pod.block_server],
            node=nodes.get(pod.node) or Node(name=pod.node, ready="Unknown" if pod.node else "True"),
            view=views.get(pod.uid),
            stranded=pod.directory != directory and not _announced(views.get(pod.uid)),
        )
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.uid))
        if pod.block_server in spans
    ]


def _announced(view: ServerView | None) -> bool:
    return view is not None and view.record is not None


def coverage(servers: Iterable[Server], num_blocks: int) -> list[int]:
    """For each block, how many servers that are online hold it."""
    counts = [0] * num_blocks
    for server in servers:
        if server.online:
            for block in server.span.blocks():
                if block < num_blocks:
                    counts[block] += 1
    return counts


def needed(server: Server, servers: Sequence[Server]) -> bool:
    """Whether sessions would lose something with a server: a block that no other one holds.

    Clients see the servers of one directory only, so a stranded one is needed until those that are online hold every
    block that is served anywhere, and it stands in for none of them.
    """
    if server.stranded:
        return server.serves and bool(uncovered(servers))
    if not (server.online or server.wavers):
        return False
    others = [other.span for other in servers if other.online and other.pod.uid != server.pod.uid]
    return any(not any(block in span for span in others) for block in server.span.blocks())


def uncovered(servers: Iterable[Server]) -> set[int]:
    """Blocks that only stranded servers hold."""
    serving = [server for server in servers if server.serves]
    held = {block for server in serving if server.online for block in server.span.blocks()}
    return {block for server in serving for block in server.span.blocks()} - held
