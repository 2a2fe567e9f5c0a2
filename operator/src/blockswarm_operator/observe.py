"""One look at one model: everything that a pass decides from, joined from watches and directory. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from blockswarm_operator import names
from blockswarm_operator.budgets import Floors, all_hold, fence, floors
from blockswarm_operator.coverage import Server, join
from blockswarm_operator.desired.pod import template
from blockswarm_operator.observed import Budget, Child, Node, Pod
from blockswarm_operator.plan import Step, Wanted, plan
from blockswarm_operator.settings import Settings
from blockswarm_operator.view import Resource
from blockswarm_wire.record import ServerView
from blockswarm_wire.span import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A readable BlockServer, with what its spec comes to."""

    resource: Resource
    span: Span
    group: str
    template: Mapping[str, Any]

    @property
    def template_hash(self) -> str:
        """Hash of the pods' template."""
        return str(self.template["metadata"]["labels"][names.TEMPLATE])


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What is, and what to do about it.

    `blind`: the directory cannot be believed now, so the last plan stands. `reachable`: whether it answers.
    """

    asks: Sequence[Ask]
    servers: Sequence[Server]
    steps: Mapping[str, Step]
    floors: Floors
    blind: bool
    reachable: bool

    def servers_of(self, name: str) -> list[Server]:
        """Servers of one BlockServer."""
        return [server for server in self.servers if server.pod.block_server == name]


def ask(resource: Resource, model: str, settings: Settings) -> Ask:
    """What a BlockServer's spec comes to."""
    assert resource.spec is not None
    blocks = resource.spec["blocks"]
    span = Span(blocks["start"], blocks["end"])
    group = names.span_group(model, span)
    body = template(resource.name, resource.spec, settings, model=model, group=group)
    return Ask(resource=resource, span=span, group=group, template=body)


def look(
    asks: Sequence[Ask],
    *,
    pods: Sequence[Pod],
    nodes: Mapping[str, Node],
    views: Mapping[str, ServerView],
    children: Sequence[Child],
    budgets: Mapping[str, Budget],
    directory: str,
    reachable: bool,
    refused: Mapping[str, str] = MappingProxyType({}),
) -> Look:
    """Decide the next step of every BlockServer of a model and the floors of its budgets.

    Args:
        asks: the model's BlockServers.
        directory: the target that servers shall announce themselves to.
        reachable: whether it answers.
        refused: BlockServer → why its children could not be applied last time.
    """
    servers = join(pods, {one.resource.name: one.span for one in asks}, nodes, views, directory=directory)
    seen = any(server.view is not None and server.view.record is not None for server in servers)
    # That it does not show servers of another directory is no fault of it.
    missing = not seen and any(server.pod.ready and not server.stranded for server in servers)
    blind = not reachable or missing
    sets = {child.block_server: child for child in children if child.kind == "ReplicaSet"}
    wanted = [_wanted(one, sets.get(one.resource.name), refused.get(one.resource.name, "")) for one in asks]
    groups = {one.group for one in asks}
    idle = groups - {s.pod.group for s in servers if s.pod.ready and not s.pod.deleting}
    if blind:
        steps = {one.name: _as_it_was(one) for one in wanted}
        asked = {group: _old_floor(budgets.get(group)) for group in groups}
    else:
        steps = plan(wanted, servers)
        asked = floors(
            servers,
            groups,
            leaving=_leaving(steps, servers),
            expendable=frozenset().union(*(step.expendable for step in steps.values())),
            held=frozenset(one.group for one in wanted if steps[one.name].hold),
        )
        if not all_hold(asked, budgets, idle=idle):
            steps = {one.name: _not_yet(steps[one.name], one) for one in wanted}
    fenced = fence(asked, budgets, idle=idle, blind=blind)
    return Look(asks=asks, servers=servers, steps=steps, floors=fenced, blind=blind, reachable=reachable)


def _wanted(one: Ask, there: Child | None, refused: str) -> Wanted:
    spec = one.resource.spec
    assert spec is not None
    return Wanted(
        name=one.resource.name,
        group=one.group,
        span=one.span,
        replicas=spec["replicas"],
        template=one.template_hash,
        allow_gap=spec["update"]["allowGap"],
        current=there.replicas if there is not None else None,
        failure=refused or (there.failure if there is not None else ""),
    )


def _as_it_was(one: Wanted) -> Step:
    """More servers may be started while the directory is away, but none is stopped."""
    text = "the directory does not answer, or does not show servers that are Ready: nothing is stopped or replaced"
    if one.current is None or one.current <= one.replicas:
        return Step(replicas=one.replicas, progress=("Waiting", text))
    return Step(replicas=one.current if one.replicas else 0, progress=("Waiting", text))


def _old_floor(budget: Budget | None) -> int:
    return budget.min_available if budget is not None else 1


def _leaving(steps: Mapping[str, Step], servers: Sequence[Server]) -> set[str]:
    """Servers that the plan makes leave: their group must not be what keeps them."""
    evicted = {step.evict.uid for step in steps.values() if step.evict is not None}
    marked = {s.pod.uid for s in servers if s.pod.name in steps[s.pod.block_server].costs}
    return evicted | marked


def _not_yet(step: Step, one: Wanted) -> Step:
    """Scaling down asks no budget: it waits until every server that must stay is held by one."""
    current = one.replicas if one.current is None else one.current
    return replace(step, replicas=max(step.replicas, current)) if step.hold else step
