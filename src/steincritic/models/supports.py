"""Where distributions live: from the constraints of torch and NumPyro to coordinates without bounds."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    MixtureSameFamily,
    TransformedDistribution,
    VonMises,
)

from steincritic.errors import InputError
from steincritic.models.coordinates import Box, Coordinates, Simplex

_INTERVAL = ("lower_bound", "upper_bound")


def of_distribution(distribution: Distribution) -> Coordinates | None:
    """Coordinates of a torch distribution; None for all of space, and where it does not say."""
    if isinstance(distribution, VonMises):
        raise InputError(_refusal("VonMises", "a circle"))
    if isinstance(distribution, Independent):
        return of_distribution(distribution.base_dist)
    if type(distribution) is TransformedDistribution:  # states the range of its last transform alone
        base = of_distribution(distribution.base_dist)
        return of_constraint(distribution.support) if base is None else _moved(base, distribution)
    try:
        support = distribution.support
    except NotImplementedError:
        return None
    return of_constraint(
        support, type(distribution).__name__, mixed=isinstance(distribution, MixtureSameFamily)
    )


def of_constraint(support: Any, name: str = "the model", *, mixed: bool = False) -> Coordinates | None:
    """Coordinates of a constraint of torch or NumPyro, which have the same names; None for all of space.

    Args:
        mixed: its edges have a component each, which must agree.
    """
    inner = support
    while hasattr(inner, "base_constraint"):
        inner = inner.base_constraint
    if support.is_discrete:
        raise InputError(f"discrete values have no score: {name} lives on {support}")
    kind = type(inner).__name__.strip("_")
    if hasattr(inner, "cseq"):
        return _joined(inner, name)
    if kind == "Simplex":
        return Simplex()
    if "Real" in kind and not any(hasattr(inner, edge) for edge in _INTERVAL):
        return None
    if kind == "Circular" or not any(hasattr(inner, edge) for edge in _INTERVAL):
        raise InputError(_refusal(name, "a circle" if kind == "Circular" else str(support)))
    low, high = (
        _numbers(getattr(inner, edge, default))
        for edge, default in zip(_INTERVAL, (-math.inf, math.inf), strict=True)
    )
    if mixed:
        low, high = (_common(edge, name) for edge in (low, high))
    return Box(low, high) if bool((low.isfinite() | high.isfinite()).any()) else None


def _refusal(name: str, place: str) -> str:
    return (
        f"{name} lives on {place}: half-lines, boxes and simplexes have coordinates without edges here; "
        "for another place write the density in such coordinates, with the Jacobian"
    )


def _numbers(edge: Any) -> Tensor:
    value = edge.detach().cpu().numpy() if isinstance(edge, Tensor) else edge
    return torch.as_tensor(np.array(value, dtype=np.float64))


def _common(edge: Tensor, name: str) -> Tensor:
    """Of all components; a density that jumps inside has no score there."""
    if edge.ndim and not bool((edge == edge[:1]).all()):
        raise InputError(f"the components of {name} end at different edges: its density jumps inside")
    return edge[0] if edge.ndim else edge


def _joined(inner: Any, name: str) -> Coordinates | None:
    """Columns side by side (torch's cat and stack)."""
    lengths = getattr(inner, "lengths", None) or [1] * len(inner.cseq)
    low: list[Tensor] = []
    high: list[Tensor] = []
    for part, length in zip(inner.cseq, lengths, strict=True):
        own = of_constraint(part, name)
        if isinstance(own, Simplex):
            raise InputError(_refusal(name, "a simplex beside other columns"))
        edges = (-math.inf, math.inf) if own is None else (own.low, own.high)  # type: ignore[attr-defined]
        for side, edge in zip((low, high), edges, strict=True):
            side.append(_numbers(edge).expand(length))
    box = Box(torch.cat(low), torch.cat(high))
    return box if bool((box.low.isfinite() | box.high.isfinite()).any()) else None


def _moved(base: Coordinates, distribution: TransformedDistribution) -> Coordinates:
    """A box after transforms of each column by itself."""
    if not isinstance(base, Box):
        raise InputError(_refusal("a transformed distribution", "what its transforms make of a simplex"))
    low, high = base.low, base.high
    for transform in distribution.transforms:
        if transform.domain.event_dim or not transform.bijective:
            raise InputError(_refusal("a transformed distribution", "what its transforms make of a box"))
        ends = of_constraint(transform.codomain)
        outer = (ends.low, ends.high) if isinstance(ends, Box) else (-math.inf, math.inf)
        up = torch.as_tensor(transform.sign) > 0
        first, last = torch.where(up, low, high), torch.where(up, high, low)
        low, high = (
            torch.where(edge.isfinite(), transform(edge), torch.as_tensor(end, dtype=torch.float64))
            for edge, end in zip((first, last), outer, strict=True)
        )
    return Box(low, high)
