"""What the watches have seen, by lane: the operator reads this instead of asking the API server."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from blockswarm_operator.kinds import CHILDREN
from blockswarm_operator.observed import Budget, Child, Node, Pod

Key = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A BlockServer as it lies in the cluster.

    `spec`: with all defaults; None if it cannot be read, and `fault` says why.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool
    spec: Mapping[str, Any] | None
    fault: str
    status: Mapping[str, Any]


@dataclass(slots=True)
class View:
    """Everything by lane key (namespace, model id), each in an index of kopf."""

    resources: Mapping[Key, Iterable[Resource]] = field(default_factory=dict)
    pods: Mapping[Key, Iterable[Pod]] = field(default_factory=dict)
    children: Sequence[Mapping[Key, Iterable[Child]]] = ()
    nodes: Mapping[str, Iterable[Node]] = field(default_factory=dict)

    def resources_of(self, key: Key) -> list[Resource]:
        """BlockServers of the lane that are not being deleted, by name."""
        found = [one for one in _all(self.resources, key) if not one.deleting]
        return sorted(found, key=lambda one: one.name)

    def has(self, namespace: str, name: str) -> bool:
        """Whether there is a BlockServer of that name."""
        keys = (key for key in self.resources if key[0] == namespace)
        return any(one.name == name for key in keys for one in self.resources_of(key))

    def pods_of(self, key: Key) -> list[Pod]:
        """Pods of the lane."""
        return _all(self.pods, key)

    def children_of(self, key: Key) -> list[Child]:
        """Applied objects of the lane that are not being deleted, without budgets."""
        return [one for one in self._children(key) if not isinstance(one, Budget)]

    def budgets_of(self, key: Key) -> dict[str, Budget]:
        """Budgets of the lane by span group."""
        found = [one for one in self._children(key) if isinstance(one, Budget)]
        return {one.group: one for one in found}

    def _children(self, key: Key) -> list[Child]:
        return [one for index in self.children for one in _all(index, key) if not one.deleting]

    def all_nodes(self) -> dict[str, Node]:
        """All nodes by name."""
        # The last one is the newest: an earlier one of that name may have gone unseen.
        return {name: list(self.nodes[name])[-1] for name in self.nodes}

    def uids(self, kind: str) -> set[str]:
        """Of all objects of a kind that the watches show."""
        indexes: dict[str, Mapping[Any, Iterable[Resource | Pod | Child | Node]]] = {
            "BlockServer": self.resources,
            "Pod": self.pods,
            "Node": self.nodes,
            **dict(zip(CHILDREN, self.children, strict=False)),
        }
        index = indexes.get(kind, {})
        return {one.uid for key in index for one in index[key]}

    def keys_on(self, node: str) -> set[Key]:
        """Lanes that have a pod on the node."""
        return {key for key in self.pods if any(pod.node == node for pod in self.pods[key])}


def _all(index: Mapping[Key, Iterable[T]], key: Key) -> list[T]:
    return list(index[key]) if key in index else []
