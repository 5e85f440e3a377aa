"""check_draws: are these draws from this posterior, and if not, which coordinates give them away?"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from steincritic.data.arrays import ArrayLike, as_float_tensor, as_points, check_finite
from steincritic.data.points import model_and_points
from steincritic.devices import DeviceLike
from steincritic.diagnosis.check import CheckResult, check, column_names
from steincritic.diagnosis.halves import FEWEST
from steincritic.errors import DoubtfulWarning, InputError, check_count
from steincritic.gof.choose import TestName, choose_test, gof_test
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.test import GofTest
from steincritic.models.base import (
    ConstrainedModel,
    Model,
    ModelLike,
    as_model,
    coordinate_names,
    dimension,
    own_dtype,
)
from steincritic.models.mixing import autocorrelations, effective_draws, potential_scale

_GONE = 0.05  # autocorrelation that is none
_NOISE = 3.5  # standard errors of an autocorrelation that is none
_FEW = 100  # kept draws below which little can be seen
_APART = 1.05  # R-hat beyond which chains have not met, less the noise below
_RHAT_NOISE = 12.0  # over the draws of a chain: the largest of ten coordinates is rarely beyond


@runtime_checkable
class Posterior(Protocol):
    """ArviZ's InferenceData, as far as it is asked."""

    posterior: Any


DrawsLike: TypeAlias = ArrayLike | Mapping[str, Any] | Posterior


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """What chains are worth. The slowest coordinate decides."""

    chains: int
    draws: int  # of one chain
    effective: float  # independent draws that all chains together are worth
    slowest: str  # coordinate
    rhat: float  # R-hat of halved chains in the worst coordinate
    thin: int  # every so many draws one was kept
    kept: int  # in all

    def __str__(self) -> str:
        chains = f"{self.chains} chains of {self.draws} draws" if self.chains > 1 else f"{self.draws} draws"
        taken = "all were tested" if self.thin == 1 else f"one in {self.thin} was tested, {self.kept} in all"
        return (
            f"{chains}, worth {self.effective:.0f} independent ones in the slowest coordinate "
            f"({self.slowest}), R-hat {self.rhat:.3f}; {taken}."
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        found = []
        if self.kept < _FEW:
            found.append(
                f"Only {self.kept} draws are left that hardly depend on each other; with fewer than {_FEW} "
                "a test sees gross errors alone. Run the chains longer, or reparametrize."
            )
        if self.rhat > _APART + _RHAT_NOISE / self.draws:
            found.append(
                f"R-hat is {self.rhat:.2f}: the chains have not met. A rejection may only say that they are "
                "too short."
            )
        return tuple(found)


def check_draws(
    model: ModelLike,
    draws: DrawsLike,
    *,
    chains: int = 1,
    thin: int | None = None,
    test: GofTest | TestName = "combined",
    level: float = 0.05,
    fdr: float = 0.1,
    seed: int = 0,
    names: Sequence[str] | None = None,
    device: DeviceLike = None,
) -> CheckResult:
    """Are these draws from the posterior whose score is known?

    Chains are thinned until neither a coordinate nor its square is correlated with that of the next draw
    kept, then tested by the score alone, then searched for where they differ. What the chains are worth is
    in `test.notes`, and as numbers in `test.settings["mixing"]`.

    Args:
        model: the posterior: anything `as_model` takes, in unconstrained coordinates. With a sampler (a
            `LangevinModel`, say) the diagnosis has regions and p-values of points too.
        draws: (chains, n, d) or (n, d) in the model's coordinates; or named draws (`mcmc.get_samples()`,
            ArviZ's InferenceData) where the model has `unconstrain`.
        chains: how many chains follow one another in (n, d), or in named draws.
        thin: keep every so many draws; 1 where they are known to be independent.
        test: as for `gof_test`, by scores alone; only the cross-fit test takes draws of the model.
        level, fdr, seed, device: as for `check`.
        names: of the coordinates; the model's own where it has some.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.check_draws(q, 0.5 * q.sample(300, seed=1), names=["mu", "log tau"]).rejected
    True
    """
    adapted = as_model(model)
    x = _by_chain(adapted, draws, chains)
    labels = column_names(names if names is not None else coordinate_names(adapted), x.shape[2])
    mixing = judge_chains(x, labels, thin=thin)
    kept = x[:, :: mixing.thin].reshape(-1, x.shape[2])
    if len(kept) < FEWEST:
        raise InputError(
            f"{mixing} That is too few to test; run the chains longer, or pass thin= to keep more, with a "
            "level that no longer holds"
        )
    for doubt in mixing.doubts:
        warnings.warn(doubt, DoubtfulWarning, stacklevel=2)
    _, points = model_and_points(adapted, kept, device=device)
    drawn_from = adapted if isinstance(choose_test(test, adapted, len(points))[0], CrossFit) else None
    result = gof_test(drawn_from, points, test, level, seed, points.x.device, names=labels)
    result = replace(
        result,
        notes=(str(mixing), *mixing.doubts, *result.notes),
        doubts=(*mixing.doubts, *result.doubts),
        settings=dict(result.settings) | {"mixing": asdict(mixing)},
    )
    return check(adapted, points, test=result, level=level, fdr=fdr, seed=seed, names=labels)


def judge_chains(x: Tensor, names: Sequence[str], *, thin: int | None = None) -> Mixing:
    """Effective sample size, R-hat and the thinning that chains (chains, n, d) need."""
    chains, steps, _ = x.shape
    if thin is not None:
        check_count(thin, name="thin")
    half = steps // 2
    if half < 4:
        raise InputError(f"a chain must have at least 8 draws, got {steps}; draws are (chains, n, d)")
    halves = torch.cat([x[:, :half], x[:, -half:]]).to(torch.float64)
    if bool((halves.flatten(0, 1).std(0) == 0).any()):
        raise InputError("a coordinate of the draws has one value throughout: it was never moved")
    worth = effective_draws(halves) / half
    worst = int(worth.argmin())
    needed = _thinning(halves)
    share = min(1.0, float(worth[worst])) if needed > 1 else 1.0  # the estimate's own noise, without need
    thin = thin or max(needed, math.ceil(1 / share))  # no more are kept than they are worth
    return Mixing(
        chains=chains,
        draws=steps,
        effective=share * chains * steps,
        slowest=names[worst],
        rhat=float(potential_scale(x.to(torch.float64)).max()),
        thin=thin,
        kept=chains * -(-steps // thin),
    )


def _thinning(trace: Tensor) -> int:
    """The first lag at which, and at the next, coordinates and their squares are uncorrelated.

    Squares, for chains that alternate around the mean can have spreads that move slowly.
    """
    centered = trace - trace.mean((0, 1))
    correlation = autocorrelations(torch.cat([centered, centered.square()], -1)).abs().amax(-1)
    bound = max(_GONE, _NOISE / (trace.shape[0] * trace.shape[1]) ** 0.5)
    gone = (correlation[:-1] < bound) & (correlation[1:] < bound)
    return max(1, int(gone.nonzero()[0])) if bool(gone.any()) else len(correlation)


def _by_chain(model: Model, draws: DrawsLike, chains: int) -> Tensor:
    """(chains, n, d), in the dtype the model computes in where it says so."""
    check_count(chains, name="chains")
    if isinstance(draws, Mapping | Posterior):
        if not isinstance(model, ConstrainedModel):
            raise InputError("named draws need a model with unconstrain(draws); pass an array (n, d)")
        chains = draws.posterior.sizes["chain"] if isinstance(draws, Posterior) else chains
        draws = model.unconstrain(draws)
    if getattr(draws, "ndim", 2) == 3:
        x = as_float_tensor(draws, name="draws")
        if chains not in (1, len(x)):
            raise InputError(f"draws of shape {tuple(x.shape)} are {len(x)} chains, but chains={chains}")
    else:
        x = as_points(draws, name="draws", dim=dimension(model))
        if len(x) % chains:
            raise InputError(f"{len(x)} draws cannot be {chains} chains of one length")
        x = x.reshape(chains, -1, x.shape[1])
    if (dim := dimension(model)) not in (None, x.shape[2]):
        raise InputError(f"draws have {x.shape[2]} coordinates, the model has {dim}")
    check_finite(x.flatten(0, 1), name="draws")
    return x.to(own_dtype(model) or x.dtype)
