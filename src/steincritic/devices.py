"""Where tensors live: a GPU where there is one, unless another device is named."""

import torch
from torch import Tensor

from steincritic.errors import InputError

DeviceLike = torch.device | str | None


def resolve_device(device: DeviceLike, x: Tensor) -> torch.device:
    """The device that was asked for, if it can be used here.

    Else where x is if that is an accelerator, or a GPU where there is one.
    """
    if device is None or device == "auto":
        on_cpu = x.device.type == "cpu" and torch.cuda.is_available()
        return torch.device("cuda") if on_cpu else x.device
    try:
        torch_device = torch.device(device)
        torch.zeros(1, device=torch_device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {str(device)!r} cannot be used here: {str(error).splitlines()[0]}"
        ) from None
    return torch_device
