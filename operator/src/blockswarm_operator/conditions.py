"""The conditions of a BlockServer: what is true of it, why, and what a person should do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blockswarm_operator.coverage import Server
from blockswarm_operator.plan import Step

TYPES = ("Accepted", "Scheduled", "ModelLoaded", "Published", "Ready", "Progressing", "Drifted")
_PULL = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
# By SIGKILL and by SIGTERM; a kill for memory has a reason of its own.
_KILLED = ("Exit137", "Exit143")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError")


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that holds ("True"), does not ("False") or is not known ("Unknown")."""

    type: str
    status: str
    reason: str
    message: str


def refused(message: str) -> list[Condition]:
    """Of a resource that cannot be read: what runs stays as it is."""
    return [Condition("Accepted", "False", "InvalidSpec", message)]


def conditions(
    replicas: int,
    servers: Sequence[Server],
    step: Step,
    *,
    template: str,
    directory: bool,
    foreign: Sequence[str],
    reachable: bool = True,
) -> list[Condition]:
    """All conditions of one BlockServer.

    Args:
        replicas: wanted.
        servers: of this BlockServer.
        step: what happens now.
        template: hash of the newest template.
        directory: whether the directory can be believed.
        reachable: whether it answers.
        foreign: managers that changed the template besides the operator.
    """
    return [
        Condition("Accepted", "True", "Valid", "the resource is valid"),
        _scheduled(replicas, servers),
        _loaded(replicas, servers),
        _published(replicas, servers, directory, reachable),
        _ready(replicas, servers, template),
        _progressing(step),
        _drifted(foreign),
    ]


def while_blind(
    found: Sequence[Condition], servers: Sequence[Server], before: Iterable[Mapping[str, Any]]
) -> list[Condition]:
    """What can be said while the directory cannot be believed: what it alone knows stays as it was said last.

    Where no pod is Ready, nothing serves, whatever the directory would say.
    """
    if not any(server.pod.ready for server in servers):
        return list(found)
    said = {item["type"] for item in before}
    return [one for one in found if one.type not in said or one.type not in ("Ready", "ModelLoaded")]


def _scheduled(replicas: int, servers: Sequence[Server]) -> Condition:
    if replicas == 0:
        return Condition("Scheduled", "True", "NoReplicasWanted", "spec.replicas is 0")
    why = next((s.pod.unschedulable for s in servers if s.pod.unschedulable), "")
    if why:
        text = f"{why.rstrip('.')}. Add nodes, or lower spec.pod.resources, or widen nodeSelector and tolerations"
        return Condition("Scheduled", "False", "Unschedulable", text)
    lost = sorted({s.pod.node for s in servers if s.lost and not s.pod.gone})
    told = f"; node {', '.join(lost)} is lost, its servers are replaced elsewhere" if lost else ""
    placed = [s for s in servers if s.pod.node and not s.pod.deleting and not s.pod.gone and not s.lost]
    if len(placed) < replicas:
        return Condition(
            "Scheduled", "False", "Pending", f"{len(placed)} of {replicas} servers have a node{told}"
        )
    return Condition("Scheduled", "True", "AllScheduled", f"every server has a node{told}")


def _loaded(replicas: int, servers: Sequence[Server]) -> Condition:
    if replicas == 0:
        return Condition("ModelLoaded", "True", "NoReplicasWanted", "spec.replicas is 0")
    alive = [s for s in servers if not s.pod.deleting and not s.pod.gone]
    for server in alive:
        if server.pod.trouble is not None and not server.pod.ready:
            return _trouble(server)
    loaded = [s for s in alive if s.pod.ready]
    if len(loaded) >= replicas:
        return Condition("ModelLoaded", "True", "Loaded", "every server has loaded its blocks")
    waiting = [s for s in alive if s.pod.node and not s.pod.started]
    if waiting and len(loaded) + len(waiting) >= len(alive):
        names = ", ".join(s.pod.name for s in waiting)
        return Condition(
            "ModelLoaded",
            "False",
            "ContainerCreating",
            f"{names}: its container is being made; if that lasts, see its events (a volume that cannot be mounted, "
            "for example)",
        )
    return Condition("ModelLoaded", "False", "Loading", f"{len(loaded)} of {replicas} servers have loaded")


def _trouble(server: Server) -> Condition:
    assert server.pod.trouble is not None
    reason, text = server.pod.trouble
    where, said = server.pod.name, f": {text.rstrip('.')}" if text else ""
    if reason in _PULL:
        remedy = "correct spec.pod.image, or give imagePullSecrets"
        return Condition(
            "ModelLoaded", "False", "ImagePullFailed", f"{where} cannot pull its image{said}. {remedy}"
        )
    if reason in _CONFIG:
        remedy = "correct the Secret or ConfigMap that the spec names"
        return Condition("ModelLoaded", "False", "ConfigError", f"{where} cannot start{said}. {remedy}")
    if reason == "OOMKilled":
        remedy = "raise spec.pod.resources.limits.memory, or lower spec.cache.tokens, or serve fewer blocks"
        return Condition(
            "ModelLoaded", "False", "OutOfMemory", f"{where} was killed for its memory. {remedy}"
        )
    if reason == "Exit2":
        remedy = "correct spec.model, spec.blocks or the model folder"
        return Condition("ModelLoaded", "False", "ModelInvalid", f"{where} refused to start{said}. {remedy}")
    if reason in _KILLED:
        remedy = f"A probe that failed or somebody killed it: see kubectl describe pod {where}"
        return Condition(
            "ModelLoaded", "False", "CrashLoop", f"{where} was killed ({reason}){said}. {remedy}"
        )
    remedy = f"see kubectl logs {where} --previous"
    return Condition("ModelLoaded", "False", "CrashLoop", f"{where} ended with {reason}{said}. {remedy}")


def _published(replicas: int, servers: Sequence[Server], directory: bool, reachable: bool) -> Condition:
    if not directory and reachable:
        text = "servers are Ready that the directory does not show: they have just begun, or it has lost its memory"
        return Condition("Published", "Unknown", "NotYetSeen", f"{text}. It knows them within 15 s")
    if not directory:
        text = "the directory does not answer: the last plan stands. Look at the pods of the directory"
        return Condition("Published", "Unknown", "DirectoryUnreachable", text)
    if replicas == 0:
        return Condition("Published", "True", "NoReplicasWanted", "spec.replicas is 0")
    online = sum(server.online for server in servers)
    stranded = sum(server.stranded for server in servers)
    status, reason = ("True", "Online") if online else ("False", "NotYetOnline")
    text = f"{online} of {replicas} servers are ONLINE in the directory"
    if stranded:
        text += f"; {stranded} announce themselves to a former directory and are replaced one by one"
    return Condition("Published", status, reason, text)


def _ready(replicas: int, servers: Sequence[Server], template: str) -> Condition:
    if replicas == 0:
        return Condition(
            "Ready", "False", "ScaledToZero", "spec.replicas is 0: raise it to serve these blocks"
        )
    online = [server for server in servers if server.online]
    if any(server.pod.template == template for server in online):
        return Condition("Ready", "True", "ServerOnline", f"{len(online)} of {replicas} servers are online")
    if online:
        text = f"{len(online)} servers of the former template serve; none of the newest is online yet"
        return Condition("Ready", "False", "RollingOut", text)
    return Condition("Ready", "False", "NoServerOnline", "no server is online; see the other conditions")


def _progressing(step: Step) -> Condition:
    reason, message = step.progress
    working = reason != "Complete" and not step.stuck
    return Condition("Progressing", "True" if working else "False", reason, message)


def _drifted(foreign: Iterable[str]) -> Condition:
    managers = ", ".join(foreign)
    if managers:
        text = f"fields of the ReplicaSet's spec belong to {managers}: set them in the BlockServer's spec.pod instead"
        return Condition("Drifted", "True", "TemplateChanged", text)
    return Condition("Drifted", "False", "InSync", "children are as the operator made them")


def dated(
    found: Sequence[Condition], before: Sequence[Mapping[str, Any]], *, generation: int, now: str
) -> list[dict[str, Any]]:
    """Conditions as they lie in the status; the time moves only when a status does. Types not found are kept."""
    old = {item["type"]: item for item in before}
    out = {name: dict(item) for name, item in old.items() if name in TYPES}
    for one in found:
        last = old.get(one.type, {})
        out[one.type] = {
            "type": one.type,
            "status": one.status,
            "reason": one.reason,
            "message": one.message[:1024],
            "observedGeneration": generation,
            "lastTransitionTime": last.get("lastTransitionTime", now)
            if last.get("status") == one.status
            else now,
        }
    return [out[name] for name in TYPES if name in out]


def worst(items: Sequence[Mapping[str, Any]]) -> str:
    """The reason that a person should read first; "" when all is well."""
    bad = {"Accepted": "False", "Scheduled": "False", "ModelLoaded": "False", "Published": "Unknown"}
    by_type = {item["type"]: item for item in items}
    for name, status in bad.items():
        if by_type.get(name, {}).get("status") == status:
            return str(by_type[name]["reason"])
    for name, good in (("Ready", "True"), ("Published", "True")):
        if by_type.get(name, {}).get("status") != good and name in by_type:
            return str(by_type[name]["reason"])
    progressing = by_type.get("Progressing", {})
    return "" if progressing.get("reason") in (None, "Complete") else str(progressing["reason"])
