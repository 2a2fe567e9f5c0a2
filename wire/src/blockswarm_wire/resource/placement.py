"""Which nodes the pods of a BlockServer may go to."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from blockswarm_wire.resource.part import Loose, Part, QualifiedName, checked, rule

_KEY_MESSAGE = "key: may be absent only with operator Exists; name a key or set operator: Exists"
_EXISTS_MESSAGE = "value: must be absent with operator Exists; remove it or set operator: Equal"


class Toleration(Part):
    """A taint of nodes that the pods put up with."""

    model_config = checked(
        rule("has(self.key) || self.operator == 'Exists'", _KEY_MESSAGE, ".key"),
        rule("!has(self.value) || self.operator == 'Equal'", _EXISTS_MESSAGE, ".value"),
    )

    key: QualifiedName | None = None
    """Key of the taint; absent with operator Exists = every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Whether the key alone counts or also the value."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint; absent = every effect."""
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """How long a NoExecute taint is put up with; absent = for ever."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.key is None and self.operator != "Exists":
            raise ValueError(_KEY_MESSAGE)
        if self.value is not None and self.operator != "Equal":
            raise ValueError(_EXISTS_MESSAGE)
        return self


class TopologySpread(Part):
    """How pods are spread over zones, racks or nodes."""

    max_skew: Annotated[int, Field(ge=1, le=1000)]
    """By how many pods two domains may differ."""
    topology_key: QualifiedName
    """Label of nodes whose values are the domains."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """Whether a pod that cannot be spread waits."""
    label_selector: Loose | None = None
    """Kubernetes' LabelSelector of the pods that are counted; absent = those of this BlockServer."""
    match_label_keys: Annotated[list[QualifiedName], Field(max_length=16)] | None = None
    """Labels of the pod whose values are added to the selector."""
    min_domains: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Fewest domains; with DoNotSchedule only."""
    node_affinity_policy: Literal["Honor", "Ignore"] | None = None
    """Whether nodes outside the pod's affinity count."""
    node_taints_policy: Literal["Honor", "Ignore"] | None = None
    """Whether tainted nodes count."""


class Affinity(Part):
    """Which nodes, and which other pods, the pods are drawn to or kept from."""

    node_affinity: Loose | None = None
    """Kubernetes' NodeAffinity."""
    pod_affinity: Loose | None = None
    """Kubernetes' PodAffinity."""
    pod_anti_affinity: Loose | None = None
    """Kubernetes' PodAntiAffinity."""
