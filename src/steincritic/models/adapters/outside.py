"""What adapters share: optional libraries, the way to NumPy and back, torch's global generators lent."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.errors import InputError
from steincritic.shapes import Points


def require(module: str, *, extra: str) -> Any:
    """An optional library, or one line on how to get it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"this model needs {module}, which cannot be imported ({error}): "
            f"pip install 'steincritic[{extra}]'"
        ) from None


def by_numpy(function: Callable[[np.ndarray], Any], x: Tensor) -> Tensor:
    """A function of float64 arrays, asked with a tensor; dtype and device of the answer follow the tensor."""
    answer = function(x.detach().to("cpu", torch.float64).numpy())
    return torch.as_tensor(np.array(answer, dtype=np.float64)).to(x)


def lent_draws(draw: Callable[[], Tensor], *, seed: int) -> Points:
    """Draws of a sampler that knows only torch's global generators: these get the seed, then are restored."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.random.manual_seed(seed)
        return draw()


def flat_draws(draws: Any) -> dict[str, np.ndarray]:
    """Named draws as arrays (n, ...): of a mapping, or of ArviZ's InferenceData with its chains joined."""
    if hasattr(draws, "posterior"):
        posterior = draws.posterior
        return {
            str(name): np.asarray(values.values).reshape(-1, *values.shape[2:])
            for name, values in posterior.data_vars.items()
        }
    arrays = {str(name): np.asarray(values) for name, values in draws.items()}
    if any(array.ndim == 0 for array in arrays.values()):
        raise InputError(
            "draws must be arrays with one row a draw, got a number; for one draw pass value[None]"
        )
    return arrays


def check_names(draws: dict[str, np.ndarray], names: list[str]) -> int:
    """How many draws there are, the same number of every parameter."""
    if missing := [name for name in names if name not in draws]:
        raise InputError(f"draws lack {', '.join(missing)}; they have {', '.join(draws) or 'nothing'}")
    counts = {name: len(draws[name]) for name in names}
    if len(set(counts.values())) != 1:
        raise InputError(f"every parameter needs as many draws as the others, got {counts}")
    return next(iter(counts.values()))


def element_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """tau, or theta[0], theta[1], ...: one name a number."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]
