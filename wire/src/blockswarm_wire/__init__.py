"""What two BlockSwarm processes must agree on: protocol, spans, records, tensors, errors, identity, resources.

No policy and no sockets live here. Torch and the Hugging Face hub are extras.
"""

__version__ = "0.1.0"
