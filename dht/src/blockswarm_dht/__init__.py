"""The swarm's distributed hash table: one hivemind node inside the process's own event loop.

`node.SwarmNode` is the door. Importing this package alone loads neither hivemind nor torch.
"""

__version__ = "0.1.0"
