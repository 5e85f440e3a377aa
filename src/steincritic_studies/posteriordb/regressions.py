"""Linear regressions of posteriordb: designs by the name of the model, priors, and one density for all."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from steincritic.shapes import PerPoint
from steincritic_studies.posteriordb.density import POSITIVE, REAL, Written

Columns = Callable[[str], Tensor]  # a column of the data by its name
Prior = Callable[[Tensor, Tensor], PerPoint | float]  # of weights (n, p) and the noise's scale (n,)


def flat(weights: Tensor, scale: Tensor) -> float:
    return 0.0


def half_cauchy(scale: Tensor, width: float) -> Tensor:
    return -torch.log1p((scale / width) ** 2)


def normal(x: Tensor, mean: Tensor | float, sd: Tensor | float) -> Tensor:
    return -0.5 * ((x - mean) / sd) ** 2


def student(x: Tensor, degrees: float, mean: float, sd: float) -> Tensor:
    return -0.5 * (degrees + 1) * torch.log1p(((x - mean) / sd) ** 2 / degrees)


def linear(design: Tensor, response: Tensor, names: list[str], prior: Prior = flat) -> Written:
    """response ~ N(design weights, scale): by least squares, so that rows cost the same for any data."""
    count, (q, r) = len(response), torch.linalg.qr(design)
    best: Tensor = torch.linalg.solve_triangular(r, (q.T @ response)[:, None], upper=True)[:, 0]
    left = (response - design @ best).square().sum()

    def joint(x: Tensor) -> PerPoint:
        weights, scale = x[:, :-1], x[:, -1]
        squares: Tensor = ((weights - best) @ r.T).square().sum(-1) + left
        return -0.5 * squares / scale**2 - count * scale.log() + prior(weights, scale)

    return Written(dict.fromkeys(names[:-1], REAL) | {names[-1]: POSITIVE}, joint)


def _cauchy(weights: Tensor, scale: Tensor) -> Tensor:
    return half_cauchy(scale, 2.5)


def _standardized(x: Tensor, spreads: float = 1.0) -> Tensor:
    return (x - x.mean()) / (spreads * x.std())


def _crossed(a: Tensor, b: Tensor) -> list[Tensor]:
    return [a, b, a * b]


def _levels(x: Tensor) -> list[Tensor]:
    """The second to the fourth level of a factor, as indicators."""
    return [(x == level).double() for level in (2, 3, 4)]


def _canopy(c: Columns, *parts: str) -> list[Tensor]:
    volume = (c("diam1") * c("diam2") * c("canopy_height")).log()
    area, shape = (c("diam1") * c("diam2")).log(), (c("diam1") / c("diam2")).log()
    known = {"volume": volume, "area": area, "shape": shape, "group": c("group")}
    return [known[part] if part in known else c(part).log() for part in parts]


def _ideology(c: Columns) -> list[Tensor]:
    before, after = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    return [*map(c, before), *_levels(c("age_discrete")), *map(c, after)]


_MESQUITE = ("diam1", "diam2", "canopy_height", "total_height", "density")

# by model: response, columns beside the constant, prior
_KIDS, _EARN, _WEIGHT = (
    lambda c: c("kid_score"),
    lambda c: c("earn").log(),
    lambda c: c("weight").log(),
)
MODELS: dict[str, tuple[Callable[[Columns], Tensor], Callable[[Columns], list[Tensor]], Prior]] = {
    "kidscore_momhs": (_KIDS, lambda c: [c("mom_hs")], _cauchy),
    "kidscore_momiq": (_KIDS, lambda c: [c("mom_iq")], _cauchy),
    "kidscore_momhsiq": (_KIDS, lambda c: [c("mom_hs"), c("mom_iq")], _cauchy),
    "kidscore_interaction": (_KIDS, lambda c: _crossed(c("mom_hs"), c("mom_iq")), _cauchy),
    "kidscore_interaction_c": (
        _KIDS,
        lambda c: _crossed(c("mom_hs") - c("mom_hs").mean(), c("mom_iq") - c("mom_iq").mean()),
        flat,
    ),
    "kidscore_interaction_c2": (_KIDS, lambda c: _crossed(c("mom_hs") - 0.5, c("mom_iq") - 100), flat),
    "kidscore_interaction_z": (
        _KIDS,
        lambda c: _crossed(_standardized(c("mom_hs"), 2), _standardized(c("mom_iq"), 2)),
        flat,
    ),
    "kidscore_mom_work": (_KIDS, lambda c: _levels(c("mom_work")), flat),
    "earn_height": (lambda c: c("earn"), lambda c: [c("height")], flat),
    "log10earn_height": (lambda c: c("earn").log10(), lambda c: [c("height")], flat),
    "logearn_height": (_EARN, lambda c: [c("height")], flat),
    "logearn_height_male": (_EARN, lambda c: [c("height"), c("male")], flat),
    "logearn_logheight_male": (_EARN, lambda c: [c("height").log(), c("male")], flat),
    "logearn_interaction": (_EARN, lambda c: _crossed(c("height"), c("male")), flat),
    "logearn_interaction_z": (_EARN, lambda c: _crossed(_standardized(c("height")), c("male")), flat),
    "mesquite": (lambda c: c("weight"), lambda c: [c(part) for part in (*_MESQUITE, "group")], flat),
    "logmesquite": (_WEIGHT, lambda c: _canopy(c, *_MESQUITE, "group"), flat),
    "logmesquite_logvolume": (_WEIGHT, lambda c: _canopy(c, "volume"), flat),
    "logmesquite_logva": (_WEIGHT, lambda c: _canopy(c, "volume", "area", "group"), flat),
    "logmesquite_logvash": (
        _WEIGHT,
        lambda c: _canopy(c, "volume", "area", "shape", "total_height", "group"),
        flat,
    ),
    "logmesquite_logvas": (
        _WEIGHT,
        lambda c: _canopy(c, "volume", "area", "shape", "total_height", "density", "group"),
        flat,
    ),
    "nes": (lambda c: c("partyid7"), _ideology, flat),
}


def regression(model: str, data: Mapping[str, Any]) -> Written:
    """One of `MODELS`: a constant and columns made of the data."""

    def column(name: str) -> Tensor:
        return torch.tensor(data[name], dtype=torch.float64)

    response, columns, prior = MODELS[model]
    y = response(column)
    design = torch.stack([torch.ones_like(y), *columns(column)], 1)
    return linear(design, y, [*numbered("beta", design.shape[1]), "sigma"], prior)


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}[{j}]" for j in range(1, count + 1)]


def sparse(data: Mapping[str, Any]) -> Written:
    """blr: weights and scale normal with standard deviation 10."""
    design, y = (torch.tensor(data[part], dtype=torch.float64) for part in ("X", "y"))

    def prior(weights: Tensor, scale: Tensor) -> Tensor:
        return normal(weights, 0, 10).sum(-1) + normal(scale, 0, 10)

    return linear(design, y, [*numbered("beta", design.shape[1]), "sigma"], prior)


def trend(data: Mapping[str, Any]) -> Written:
    """kilpisjarvi: a line through temperatures by year, with priors that come with the data."""
    x, y = (torch.tensor(data[part], dtype=torch.float64) for part in ("x", "y"))

    def prior(weights: Tensor, scale: Tensor) -> Tensor:
        level = normal(weights[:, 0], data["pmualpha"], data["psalpha"])
        return level + normal(weights[:, 1], data["pmubeta"], data["psbeta"])

    return linear(torch.stack([torch.ones_like(x), x], 1), y, ["alpha", "beta", "sigma"], prior)


def autoregression(data: Mapping[str, Any]) -> Written:
    """arK: each value from the K before it."""
    y, lags = torch.tensor(data["y"], dtype=torch.float64), int(data["K"])
    past = [y[lags - k : len(y) - k] for k in range(1, lags + 1)]

    def prior(weights: Tensor, scale: Tensor) -> Tensor:
        return normal(weights, 0, 10).sum(-1) + half_cauchy(scale, 2.5)

    names = ["alpha", *numbered("beta", lags), "sigma"]
    return linear(torch.stack([torch.ones_like(past[0]), *past], 1), y[lags:], names, prior)


def diamonds(data: Mapping[str, Any]) -> Written:
    """Prices of diamonds by 24 centered columns, the constant after them."""
    x, y = (torch.tensor(data[part], dtype=torch.float64) for part in ("X", "Y"))
    centered = x[:, 1:] - x[:, 1:].mean(0)

    def prior(weights: Tensor, scale: Tensor) -> Tensor:
        level = student(weights[:, -1], 3, 8, 10) + student(scale, 3, 0, 10)
        return normal(weights[:, :-1], 0, 1).sum(-1) + level

    names = [*numbered("b", centered.shape[1]), "Intercept", "sigma"]
    return linear(torch.cat([centered, torch.ones_like(y)[:, None]], 1), y, names, prior)
