"""Where tensors live: a GPU where there is one, unless another device is named."""

import torch
from torch import Tensor

from steincritic.errors import InputError

DeviceLike = torch.device | str | None


def best_device(x: Tensor) -> torch.device:
    """Where x is if that is an accelerator, else a GPU where there is one."""
    if x.device.type != "cpu" or not torch.cuda.is_available():
        return x.device
    return torch.device("cuda")


def resolve_device(device: DeviceLike, x: Tensor) -> torch.device:
    """The device that was asked for, if it can be used here; else the best one for x."""
    if device is None or device == "auto":
        return best_device(x)
    try:
        found = torch.device(device)
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {str(device)!r} cannot be used here: {str(error).splitlines()[0]}"
        ) from None
    return found
