"""A cluster in one object: an API server, the controllers that the operator relies on, and a directory.

Nothing moves by itself. Tests call the controllers, the watches and the operator in any order, so that each of them may
be late. It raises `Gap` where a pod is made to leave that was the last server of a block.
"""

import asyncio
import copy
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from operator_objects import MODEL_KEY, SETTINGS, record

from blockswarm_operator import names, observed
from blockswarm_operator.cluster import ApiError
from blockswarm_operator.directory import DirectoryUnreachable, Known
from blockswarm_operator.handlers import resource
from blockswarm_operator.metrics import Metrics
from blockswarm_operator.observe import ask
from blockswarm_operator.reconcile import Reconciler
from blockswarm_operator.settings import Settings
from blockswarm_operator.view import Key, View
from blockswarm_wire.record import Statement
from blockswarm_wire.span import Span

Body = dict[str, Any]
KINDS = ("ReplicaSet", "Service", "NetworkPolicy", "PodDisruptionBudget")


class Gap(AssertionError):
    """A block has lost its last server."""


class Killed(Exception):
    """The operator's process has ended in the middle of a pass."""


class World:
    """The cluster.

    `calls`: every request of the operator as (verb, kind, name). `trouble`: what happens to its next write: "refused",
    or "lost" (done, but the answer does not arrive). `killed_at`: its process ends with that write, counted from 1.
    """

    def __init__(self, nodes: Mapping[str, int], settings: Settings = SETTINGS) -> None:
        self.room = dict(nodes)
        self.cordoned: set[str] = set()
        self.lost: set[str] = set()
        self.block_servers: dict[str, Body] = {}
        self.objects: dict[tuple[str, str], Body] = {}
        self.pods: dict[str, Body] = {}
        self.announced: set[str] = set()
        self._spans: dict[str, Span] = {}
        self.guarded = True
        self.calls: list[tuple[str, str, str]] = []
        self.trouble = ""
        self.killed_at = 0
        self.events: list[tuple[str, str, str]] = []
        self.failures: list[Exception] = []
        self.view = View()
        self.directory = FakeDirectory(self)
        self.settings = settings
        self.reconciler = self.restarted_operator()
        self._clock = 0
        self._moves = 0

    def restarted_operator(self) -> Reconciler:
        """A new process of the operator, which knows what the watches show and nothing else."""
        self.metrics = Metrics()
        self.reconciler = Reconciler(self.view, self, self.directory, self.settings, self.metrics)  # type: ignore[arg-type]
        return self.reconciler

    def move_directory(self) -> None:
        """The operator comes back with a directory at another address, as installed under another release name."""
        self._moves += 1
        self.settings = replace(self.settings, directory=f"dns:///directory.system-{self._moves}.svc:31340")
        self.restarted_operator()

    # --- people ---------------------------------------------------------------------------------------------------

    def put(self, body: Body) -> None:
        """kubectl apply of a BlockServer."""
        name = body["metadata"]["name"]
        before = self.block_servers.get(name)
        body = copy.deepcopy(body)
        if before is not None:
            body["status"] = before.get("status", {})
            body["metadata"]["generation"] = before["metadata"]["generation"] + 1
        self.block_servers[name] = body

    def change(self, name: str, **spec: Any) -> None:
        """Change fields of a BlockServer's spec."""
        body = copy.deepcopy(self.block_servers[name])
        body["spec"].update(spec)
        self.put(body)

    def status(self, name: str) -> Body:
        """Status of a BlockServer."""
        return self.block_servers[name].get("status", {})

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        """(status, reason) of a condition."""
        (found,) = [one for one in self.status(name)["conditions"] if one["type"] == kind]
        return found["status"], found["reason"]

    # --- the operator ---------------------------------------------------------------------------------------------

    def watch(self, *kinds: str) -> None:
        """Let the operator's watches catch up; default: all of them."""
        if not kinds or "BlockServer" in kinds:
            self.view.resources = _indexed(resource(body) for body in self.block_servers.values())
        if not kinds or "Pod" in kinds:
            found = [observed.pod(body) for body in self.pods.values()]
            self.view.pods = _indexed(((one.namespace, one.model), one) for one in found)
        if not kinds or "Node" in kinds:
            self.view.nodes = {name: [self._node(name)] for name in self.room}
        if not kinds or "Directory" in kinds:
            self.directory.hear()
        for kind in KINDS if not kinds else [kind for kind in KINDS if kind in kinds]:
            read = (
                observed.budget
                if kind == "PodDisruptionBudget"
                else lambda body, k=kind: observed.child(body, k)
            )
            mine = [body for (k, _), body in self.objects.items() if k == kind]
            made = [read(body) for body in mine if names.MANAGED_BY in body["metadata"].get("labels", {})]
            index = _indexed(((one.namespace, one.model), one) for one in made)
            children = list(self.view.children) or [{} for _ in KINDS]
            children[KINDS.index(kind)] = index
            self.view.children = children

    @property
    def keys(self) -> set[Key]:
        """Lanes of the BlockServers that the operator has seen."""
        return set(self.view.resources)

    def operate(self) -> list[float | None]:
        """One pass of the operator over every lane; a failed one is noted, as lanes do."""
        return [asyncio.run(self._pass(key)) for key in sorted(self.keys)]

    async def _pass(self, key: Key) -> float | None:
        try:
            return await self.reconciler(key)
        except (ApiError, DirectoryUnreachable, Killed) as error:
            self.failures.append(error)
            return 0.5

    def step(self) -> None:
        """Everybody does something once, the operator included."""
        self.run_replica_sets()
        self.schedule()
        self.run_kubelets()
        self.run_budgets()
        self.watch()
        self.operate()

    def settle(self, most: int = 60) -> None:
        """Let everybody work until nothing changes any more."""
        for _ in range(most):
            before = self.picture()
            self.step()
            if self.picture() == before:
                return
        raise AssertionError(f"no rest after {most} rounds")

    def picture(self) -> Body:
        """All that is, to compare."""
        return copy.deepcopy(
            {
                "objects": self.objects,
                "pods": self.pods,
                "online": sorted(self.announced),
                "of": self.block_servers,
            }
        )

    # --- what is true ---------------------------------------------------------------------------------------------

    def serving(self, *, without: str = "") -> dict[int, int]:
        """Block → servers that are ready, known to the directory and not leaving."""
        counts: dict[int, int] = {}
        for name, body in self.pods.items():
            meta = body["metadata"]
            if name != without and _ready(body) and meta["uid"] in self.announced and not _leaves(body):
                for block in self.span(body).blocks():
                    counts[block] = counts.get(block, 0) + 1
        return counts

    def span(self, body: Body) -> Span:
        """Span of a pod's server."""
        return self._spans[body["metadata"]["name"]]

    def pods_of(self, name: str) -> list[Body]:
        """Pods of a BlockServer that are not leaving, oldest first."""
        mine = [body for body in self.pods.values() if body["metadata"]["labels"][names.BLOCK_SERVER] == name]
        return [body for body in mine if not _leaves(body)]

    def up_to_date(self, name: str) -> bool:
        """Whether all wanted servers run the newest template."""
        key, found = resource(self.block_servers[name])
        wanted = ask(found, key[1], self.settings).template_hash
        templates = [body["metadata"]["labels"][names.TEMPLATE] for body in self.pods_of(name)]
        return templates == [wanted] * found.spec["replicas"]  # type: ignore[index]

    def floor(self, name: str) -> int:
        """minAvailable of a BlockServer's span group."""
        key, found = resource(self.block_servers[name])
        group = ask(found, key[1], self.settings).group
        return int(self.objects["PodDisruptionBudget", names.budget_name(group)]["spec"]["minAvailable"])

    # --- controllers ----------------------------------------------------------------------------------------------

    def run_replica_sets(self) -> None:
        """Make missing pods, delete those that are too many."""
        for (kind, name), body in list(self.objects.items()):
            if kind != "ReplicaSet":
                continue
            mine = [one for one in self.pods_of(name) if one["status"]["phase"] in ("Pending", "Running")]
            surplus = len(mine) - body["spec"]["replicas"]
            for _ in range(-surplus):
                self._make_pod(name, body["spec"]["template"])
            for one in sorted(mine, key=_first_to_go)[: max(surplus, 0)]:
                self._leave(one["metadata"]["name"])

    def schedule(self) -> None:
        """Give pods a node that has room."""
        for body in self.pods.values():
            if body["spec"]["nodeName"] or _leaves(body):
                continue
            used = [other["spec"]["nodeName"] for other in self.pods.values()]
            free = [
                node
                for node, room in self.room.items()
                if used.count(node) < room and node not in self.cordoned and node not in self.lost
            ]
            if free:
                body["spec"]["nodeName"] = min(free, key=lambda node: (used.count(node), node))
                body["status"]["conditions"] = []
            else:
                body["status"]["conditions"] = [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient memory.",
                    }
                ]

    def run_kubelets(self, *only: str) -> None:
        """Move each pod on by one step of its life."""
        for name in list(only or self.pods):
            body = self.pods.get(name)
            if body is None or body["spec"]["nodeName"] in self.lost:
                continue
            uid, status = body["metadata"]["uid"], body["status"]
            if _leaves(body):
                self.announced.discard(uid)
                del self.pods[name]
            elif not body["spec"]["nodeName"]:
                continue
            elif status["phase"] == "Pending":
                status["phase"], status["podIP"] = "Running", "10.0.0.9"
                status["containerStatuses"] = [{"name": "server", "state": {"running": {"startedAt": "…"}}}]
            elif uid not in self.announced:
                self.announced.add(uid)
            elif not _ready(body):
                # A server turns ready after its record was read back.
                status["conditions"] = [{"type": "Ready", "status": "True"}]

    def run_budgets(self) -> None:
        """What the disruption controller finds."""
        for (kind, _), body in self.objects.items():
            if kind != "PodDisruptionBudget":
                continue
            mine = [one for one in self.pods.values() if _selects(body, one)]
            left = {
                name: when
                for name, when in body["status"].get("disruptedPods", {}).items()
                if name in self.pods and not _leaves(self.pods[name])
            }
            healthy = sum(
                _ready(one) and not _leaves(one) and one["metadata"]["name"] not in left for one in mine
            )
            body["status"] = {
                "observedGeneration": body["metadata"]["generation"],
                "currentHealthy": healthy,
                "disruptionsAllowed": max(0, healthy - body["spec"]["minAvailable"]),
                "disruptedPods": left,
            }

    def lose(self, node: str) -> None:
        """The node's power goes: nothing is heard of it, its pods are no longer ready."""
        self.lost.add(node)
        for body in self.pods.values():
            if body["spec"]["nodeName"] == node:
                body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]

    # --- the API, as `Cluster` offers it --------------------------------------------------------------------------

    async def apply(self, manifest: Mapping[str, Any]) -> Body:
        self._called("apply", manifest["kind"], manifest["metadata"]["name"])
        return self._answer(copy.deepcopy(self._store(copy.deepcopy(dict(manifest)))))

    async def apply_status(self, namespace: str, name: str, status: Mapping[str, Any]) -> Body:
        self._called("status", "BlockServer", name)
        if name not in self.block_servers:
            raise ApiError(404, "not found")
        self.block_servers[name]["status"] = copy.deepcopy(dict(status))
        return self._answer({"metadata": {}})

    async def annotate_pod(self, namespace: str, name: str, uid: str, notes: Mapping[str, Any]) -> None:
        self._called("annotate", "Pod", name)
        if name not in self.pods:
            raise ApiError(404, "not found")
        there = self.pods[name]["metadata"].setdefault("annotations", {})
        for key, value in notes.items():
            if value is None:
                there.pop(key, None)
            else:
                there[key] = value
        self._answer({})

    async def evict(self, namespace: str, name: str, uid: str) -> bool:
        self._called("evict", "Pod", name)
        allowed = self.evicts(name)
        self._answer({})
        return allowed

    def evicts(self, name: str) -> bool:
        """The Eviction API: deletes a pod where its budget allows it."""
        body = self.pods.get(name)
        if body is None or _leaves(body):
            return True
        found = [
            o for (kind, _), o in self.objects.items() if kind == "PodDisruptionBudget" and _selects(o, body)
        ]
        assert len(found) <= 1, "a pod with two budgets cannot be evicted at all"
        if found and _ready(body):
            status = found[0]["status"]
            if status.get("observedGeneration", 0) < found[0]["metadata"]["generation"]:
                return False
            if status["disruptionsAllowed"] < 1:
                return False
            status["disruptionsAllowed"] -= 1
            status["disruptedPods"][name] = "now"
        self._leave(name)
        return True

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self._called("delete", kind, name)
        self.objects.pop((kind, name), None)
        self._answer({})

    async def create_event(self, event: Mapping[str, Any]) -> None:
        self._called("event", "Event", event["regarding"]["name"])
        self.events.append((event["regarding"]["name"], event["type"], event["reason"]))
        self._answer({})

    async def read(self, kind: str, namespace: str, name: str) -> Body | None:
        self._called("read", kind, name)
        return copy.deepcopy(self.objects.get((kind, name)))

    @property
    def writes(self) -> list[tuple[str, str, str]]:
        """The calls that changed something or tried to."""
        return [call for call in self.calls if call[0] != "read"]

    def _called(self, verb: str, kind: str, name: str) -> None:
        self.calls.append((verb, kind, name))
        if verb != "read" and self.trouble == "refused":
            self.trouble = ""
            raise ApiError(503, "the server is currently unable to handle the request")

    def _answer(self, answer: Body) -> Body:
        if self.trouble == "lost":
            self.trouble = ""
            raise ApiError(0, "TimeoutError")
        if self.killed_at:
            self.killed_at -= 1
            if not self.killed_at:
                raise Killed
        return answer

    def _store(self, body: Body) -> Body:
        kind, meta = body["kind"], body["metadata"]
        before = self.objects.get((kind, meta["name"]))
        old: Body = before["metadata"] if before else {"uid": f"uid-{self._tick()}", "generation": 0}
        changed = before is None or before.get("spec") != body.get("spec")
        version = old.get("resourceVersion", "0")
        if changed or _noted(old) != _noted(meta):
            version = str(self._tick())
        meta |= {"uid": old["uid"], "resourceVersion": version, "managedFields": old.get("managedFields", [])}
        if kind != "Service":
            meta["generation"] = old["generation"] + changed
        body["status"] = before["status"] if before else {}
        self.objects[kind, meta["name"]] = body
        return body

    def _make_pod(self, owner: str, template: Body) -> None:
        number = self._tick()
        name, blocks = f"{owner}-{number:05}", self.block_servers[owner]["spec"]["blocks"]
        self._spans[name] = Span(blocks["start"], blocks["end"])
        self.pods[name] = {
            "metadata": {
                **copy.deepcopy(template["metadata"]),
                "namespace": "models",
                "name": name,
                "uid": f"uid-{name}",
                "creationTimestamp": f"2026-11-30T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z",
            },
            "spec": {"containers": copy.deepcopy(template["spec"]["containers"]), "nodeName": ""},
            "status": {"phase": "Pending", "conditions": [], "containerStatuses": []},
        }

    def _leave(self, name: str) -> None:
        before, after = self.serving(), self.serving(without=name)
        uncovered = sorted(block for block in before if block not in after)
        if uncovered and self.guarded:
            raise Gap(f"{name} leaves and was the last server of blocks {uncovered}")
        self.pods[name]["metadata"]["deletionTimestamp"] = "2026-11-30T23:00:00Z"

    def _node(self, name: str) -> observed.Node:
        return observed.Node(
            name=name, ready="Unknown" if name in self.lost else "True", cordoned=name in self.cordoned
        )

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


class FakeDirectory:
    """What `Directory` offers. `deaf`: it does not answer. `silent`: addresses that answer no health call."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.deaf = False
        self.silent: set[str] = set()
        self.stated: dict[str, Statement] = {}
        self.followed: set[str] = set()
        self.published: list[Mapping[str, Statement]] = []
        self._shown: dict[str, Any] = {}
        self._heard = 0.0

    def hear(self) -> None:
        """Show the records of now, unless it does not answer."""
        if self.deaf:
            return
        world, now = self._world, time.time()
        self._heard = now
        self._shown = {
            body["metadata"]["uid"]: record(body["metadata"]["uid"], world.span(body), issued_at=now)
            for body in world.pods.values()
            if body["metadata"]["uid"] in world.announced
            and observed.pod(body).directory == world.settings.directory
        }

    def follow(self, model: str, name: str, ours: Any) -> None:
        self.followed.add(model)

    def known(self, model: str) -> Known:
        return Known(
            key=MODEL_KEY if self._shown else "",
            records=dict(self._shown),
            stated=self.stated,
            reachable=not self.deaf,
            heard=self._heard,
        )

    async def first_answer(self, model: str) -> None:
        """What it showed last is there at once."""

    async def leave(self, model: str) -> None:
        self.followed.discard(model)

    async def publish(self, model: str, statements: Mapping[str, Statement]) -> None:
        if not self._shown or not statements:
            return
        if self.deaf:
            raise DirectoryUnreachable("no directory took the statements")
        self.published.append(statements)
        self.stated.update(statements)

    async def healthy(self, address: str) -> bool:
        return address not in self.silent


def _indexed(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def _ready(body: Body) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in body["status"]["conditions"])


def _leaves(body: Body) -> bool:
    return "deletionTimestamp" in body["metadata"]


def _selects(budget: Body, pod: Body) -> bool:
    wanted = budget["spec"]["selector"]["matchLabels"]
    return wanted.items() <= pod["metadata"]["labels"].items()


def _noted(meta: Body) -> Any:
    return meta.get("annotations"), meta.get("labels"), meta.get("ownerReferences")


def _first_to_go(body: Body) -> tuple[Any, ...]:
    """The order of Kubernetes' own controller."""
    cost = int(body["metadata"].get("annotations", {}).get(names.DELETION_COST, 0))
    return bool(body["spec"]["nodeName"]), body["status"]["phase"] == "Running", _ready(body), cost
