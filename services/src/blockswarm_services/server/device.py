"""The device that a server computes on."""

import torch

from blockswarm_wire.errors import InvalidArgument


def usable_device(name: str) -> torch.device:
    """The torch device of that name.

    Raises:
        InvalidArgument: there is no such device, or this torch or this machine cannot use it.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InvalidArgument(f"--device: {name[:40]!r} is no torch device: use cpu or cuda") from None
    if device.type == "cuda" and torch.cuda.device_count() <= (device.index or 0):
        if torch.version.cuda is None:
            why = "this torch computes on CPUs only: use an image that was built with --build-arg TORCH=cuda"
        else:
            why = (
                "this machine shows no such GPU: ask for one (spec.compute.gpu), or look at the node's driver"
            )
        raise InvalidArgument(f"--device: {name}, but {why}")
    return device
