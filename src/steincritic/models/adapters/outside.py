"""What adapters share: optional libraries, the way to NumPy and back, draws by name."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steincritic.errors import InputError
from steincritic.models.base import Described
from steincritic.shapes import PerPoint, Points


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


class ByPoint(Described):
    """A density that another library computes for one point at a time, in float64, with its gradient."""

    def _at(self, point: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-density and its gradient (d,)."""
        raise NotImplementedError

    def log_prob(self, x: Points) -> PerPoint:
        return by_numpy(lambda points: [self._at(point)[0] for point in points], x)

    def score(self, x: Points) -> Points:
        return by_numpy(lambda points: np.stack([self._at(point)[1] for point in points]), x)


def fitted_names(estimator: Any) -> tuple[str, ...] | None:
    """Names of the columns of the frame that an estimator of scikit-learn was fitted on."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def flat_draws(draws: Any, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Arrays (n, ...) of these names: of a mapping, or of ArviZ's InferenceData with its chains joined."""
    if hasattr(draws, "posterior"):
        variables = draws.posterior.data_vars.items()
        arrays = {str(k): np.asarray(v.values).reshape(-1, *v.shape[2:]) for k, v in variables}
    else:
        arrays = {str(name): np.asarray(values) for name, values in draws.items()}
    if missing := [name for name in names if name not in arrays]:
        raise InputError(f"draws lack {', '.join(missing)}; they have {', '.join(arrays) or 'nothing'}")
    arrays = {name: arrays[name] for name in names}
    if any(array.ndim == 0 for array in arrays.values()):
        raise InputError(
            "draws must be arrays with one row per draw, got a number; for one draw pass value[None]"
        )
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        raise InputError(f"every parameter needs as many draws as the others, got {counts}")
    return arrays


def named_draws(draws: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Draws of these parameters in their own shapes."""
    arrays = flat_draws(draws, list(shapes))
    for name, shape in shapes.items():
        inner = arrays[name].shape[1:]
        if inner != shape:
            sizes = ", ".join(map(str, ("n", *shape)))
            chains = "; flatten its chains, or are chains and draws swapped?" if inner[1:] == shape else ""
            raise InputError(f"draws of {name} must have shape ({sizes}), got {arrays[name].shape}{chains}")
    return arrays


def check_mapped(draws: dict[str, np.ndarray], points: Points, names: list[str]) -> Points:
    """The points of draws; a finite draw without a finite point lies outside of a parameter's support."""
    bad = ~points.isfinite()
    if not bool(bad.any()) or any(not np.isfinite(values).all() for values in draws.values()):
        return points
    row, column = bad.nonzero()[0].tolist()
    raise InputError(
        f"draws have no finite {names[column]}, the first in row {row}: a parameter lies outside of its "
        "support there; pass draws of the model's own parameters, not of transformed ones"
    )


def element_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """tau, or theta[0], theta[1], ...: one name per number."""
    if not shape:
        return [name]
    return [f"{name}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]
