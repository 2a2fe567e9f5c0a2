"""The operator in a cluster where everything is late and evictions hit at random: no block loses its last server.

The world raises `Gap` at the moment at which a pod is made to leave that was the last server of a block.
"""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_objects import block_server
from operator_world import KINDS, World

# Equal, nested and staggered spans, with one and two servers each.
LAYOUTS = [
    {"a": (0, 10, 1), "b": (0, 10, 1)},
    {"a": (0, 10, 2), "b": (10, 20, 1)},
    {"a": (0, 20, 1), "b": (0, 10, 1), "c": (10, 20, 1)},
    {"a": (0, 10, 1), "b": (5, 15, 1), "c": (10, 20, 2)},
]
WATCHES = ("BlockServer", "Pod", "Node", "Directory", *KINDS)
ACTIONS = st.one_of(
    st.tuples(st.just("operate"), st.just(0)),
    st.tuples(st.just("watch"), st.integers(0, len(WATCHES) - 1)),
    st.tuples(st.just("watch all"), st.just(0)),
    st.tuples(st.sampled_from(["replica sets", "schedule", "budgets"]), st.just(0)),
    st.tuples(st.sampled_from(["kubelet", "evict", "kubelets"]), st.integers(0, 9)),
    st.tuples(st.sampled_from(["cordon", "uncordon"]), st.integers(0, 2)),
    st.tuples(st.sampled_from(["restart", "more", "fewer"]), st.integers(0, 2)),
    st.tuples(st.sampled_from(["new operator", "new directory"]), st.just(0)),
    st.tuples(st.sampled_from(["deaf", "hears", "refused", "lost"]), st.just(0)),
    st.tuples(st.just("killed"), st.integers(0, 3)),
)


def _world(layout, nodes=None):
    world = World(nodes or {"node-1": 4, "node-2": 4, "node-3": 4})
    for name, (start, end, replicas) in layout.items():
        world.put(block_server(name, blocks={"start": start, "end": end}, replicas=replicas))
    world.settle()
    return world


def _act(world, what, number):
    pods = sorted(world.pods)
    nodes = sorted(world.room)
    servers = sorted(world.block_servers)
    name = servers[number % len(servers)]
    if what == "operate":
        world.operate()
    elif what == "watch":
        world.watch(WATCHES[number])
    elif what == "watch all":
        world.watch()
    elif what == "replica sets":
        world.run_replica_sets()
    elif what == "schedule":
        world.schedule()
    elif what == "budgets":
        world.run_budgets()
    elif what == "kubelets":
        world.run_kubelets()
    elif what == "kubelet" and pods:
        world.run_kubelets(pods[number % len(pods)])
    elif what == "evict" and pods:
        world.evicts(pods[number % len(pods)])
    elif what == "cordon":
        world.cordoned.add(nodes[number])
    elif what == "uncordon":
        world.cordoned.discard(nodes[number])
    elif what == "restart":
        world.change(name, restart=f"{world.block_servers[name]['metadata']['generation']}")
    elif what in ("more", "fewer"):
        replicas = world.block_servers[name]["spec"]["replicas"] + (1 if what == "more" else -1)
        world.change(name, replicas=min(max(replicas, 1), 3))
    elif what == "new operator":
        world.restarted_operator()
        world.watch()
    elif what == "new directory":
        world.move_directory()
        world.watch()
    elif what in ("deaf", "hears"):
        world.directory.deaf = what == "deaf"
    elif what in ("refused", "lost"):
        world.trouble = what
    elif what == "killed":  # after one more write
        world.killed_at = 1 + number
        world.operate()
        world.killed_at = 0
        world.restarted_operator()
        world.watch()


@hypothesis.settings(max_examples=80, deadline=None)
@given(layout=st.sampled_from(LAYOUTS), actions=st.lists(ACTIONS, max_size=60))
@hypothesis.example(layout=LAYOUTS[1], actions=[("new directory", 0), ("fewer", 0)])
def test_whatever_happens_in_whatever_order_no_block_loses_its_last_server(layout, actions):
    world = _world(layout)
    for what, number in actions:
        _act(world, what, number)
    # And once it is calm, everybody is up to date and nobody waits for ever.
    world.cordoned.clear()
    world.directory.deaf = False
    world.trouble = ""
    world.settle(most=200)
    for name in layout:
        assert world.up_to_date(name)
        assert world.condition(name, "Ready") == ("True", "ServerOnline")
        assert world.condition(name, "Progressing") == ("False", "Complete")


@hypothesis.settings(max_examples=30, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    restarted=st.lists(st.integers(0, 2), max_size=3),
    evictions=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=20),
    drained=st.integers(0, 2),
)
def test_a_drained_node_gets_empty_while_others_are_evicted_and_restarted(
    layout, restarted, evictions, drained
):
    world = _world(layout)
    for number in restarted:
        _act(world, "restart", number)
    node = f"node-{drained + 1}"
    world.cordoned.add(node)
    for batch in evictions:
        for number in batch:
            _act(world, "evict", number)
        world.step()
    for _ in range(60):
        there = [name for name, body in world.pods.items() if body["spec"]["nodeName"] == node]
        if not there:
            break
        for name in there:
            world.evicts(name)
        world.step()
    else:
        pytest.fail(f"{node} was never drained")
    world.settle(most=200)
    assert all(world.up_to_date(name) for name in layout)


def test_room_made_by_scaling_down_lets_a_model_move_to_another_directory():
    world = _world({"a": (0, 10, 3), "b": (10, 20, 1)}, {"node-1": 4})
    world.move_directory()
    for _ in range(5):
        world.step()
    assert world.condition("b", "Progressing") == ("False", "NoSpareCapacity")
    world.change("a", replicas=1)
    world.settle(most=100)
    assert all(world.up_to_date(name) for name in "ab")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_restarted_at_once_with_room_for_one_more_pod(layout):
    pods = sum(replicas for _, _, replicas in layout.values())
    world = _world(layout, {"node-1": pods + 1})
    for name in layout:
        world.change(name, restart="now")
    most = 0
    for _ in range(100):
        world.step()
        most = max(most, len(world.pods))
    assert all(world.up_to_date(name) for name in layout)
    assert all(world.condition(name, "Progressing") == ("False", "Complete") for name in layout)
    assert world.serving().keys() == set(range(max(end for _, end, _ in layout.values())))
