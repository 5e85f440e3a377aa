"""check_draws: are these draws from this posterior, and if not, which coordinates give them away?"""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from steincritic.data.chains import DrawsLike, read_chains
from steincritic.data.layout import Rows
from steincritic.data.points import ScoredPoints, answer, column_names, model_and_points
from steincritic.devices import DeviceLike
from steincritic.diagnosis.check import diagnose
from steincritic.diagnosis.check_result import CheckResult
from steincritic.diagnosis.halves import FEWEST
from steincritic.errors import (
    DoubtfulWarning,
    InputError,
    ModelError,
    check_count,
    check_level,
    listed,
    without,
)
from steincritic.gof.assumptions import FITTED, OF_SERIES
from steincritic.gof.choose import TestName, caveats_of, choose_test, slowed
from steincritic.gof.crossfit import CrossFit
from steincritic.gof.result import DRAWS, Caveat, GofResult
from steincritic.gof.serial import Blocks, slowness_if_any, stein_series
from steincritic.gof.test import GofTest
from steincritic.models.base import Model, ModelLike, as_model
from steincritic.models.bounded import unbounded
from steincritic.models.mixing import effective_draws, potential_scale
from steincritic.rng import derive

_FEW = 100  # independent draws below which little can be seen
_APART = 1.05  # R-hat beyond which chains have not met, less the noise below
_RHAT_NOISE = 12.0  # over the draws of a chain: the largest of ten coordinates is rarely beyond
_OFF, _RIGHT = (4.0, 10.0), (4.0, 3.0)  # of a score that does not fit, and one that does; see `_off`
_OF_CHAINS = (*OF_SERIES, FITTED)  # caveats about rows that chains allow for
_LOOKED_AT = 500  # draws whose scores are asked for again


@dataclass(frozen=True, kw_only=True)
class Mixing:
    """What chains are worth."""

    chains: int
    draws: int  # of one chain
    effective: float  # independent draws that all chains together are worth, in the slowest coordinate
    slowest: str  # coordinate
    rhat: float  # R-hat of halved chains in the worst coordinate
    apart: str  # which chain is apart where, in words; empty if none is
    thin: int  # every so many draws one was kept
    kept: int  # in all
    slowness: float  # kept draws in a row that are worth one for the test; 1 where they look independent

    @property
    def worth(self) -> str:
        chains = f"{self.chains} chains of {self.draws} draws" if self.chains > 1 else f"{self.draws} draws"
        return (
            f"{chains}, worth {self.effective:.0f} independent ones in the slowest coordinate "
            f"({self.slowest}), R-hat {self.rhat:.3f}"
        )

    def __str__(self) -> str:
        share = "all were tested" if self.thin == 1 else f"one in {self.thin} was tested, {self.kept} in all"
        if self.slowness > 1:
            few = f"about {self.slowness:.1f} in a row counted as one"
            share += f", {few if self.slowness >= 1.5 else 'allowing for a weak dependence'}"
        return f"{self.worth}; {share}."

    @property
    def doubts(self) -> tuple[str, ...]:
        doubts = []
        if (worth := self.kept / self.slowness) < _FEW:
            doubts.append(
                f"The test counts the draws as {worth:.0f} independent ones; with fewer than {_FEW} it sees "
                "gross errors alone. Run the chains longer, or reparametrize."
            )
        if self.chains > self.draws:
            doubts.append(
                f"{self.chains} chains of {self.draws} draws: are the first two axes swapped? Draws are "
                "(chains, n, d)."
            )
        return tuple(doubts)

    def caveats(self, *, rejected: bool) -> tuple[Caveat, ...]:
        """Chains that disagree among each other leave nothing to be said of their posterior."""
        if not self.apart:
            return ()
        only = "A rejection may only say that they are too short" if rejected else "Run them longer"
        return (Caveat("chains apart", f"{self.apart} {only}, or look at how they start.", grave=True),)

    @property
    def notes(self) -> tuple[str, ...]:
        alone = "One chain alone cannot tell whether others, from other starts, would agree."
        return (str(self), *self.doubts, *([alone] if self.chains == 1 and self.slowness > 1 else []))


@without(log_q="ArviZ has Pareto k-hat (arviz.psislw)")
def check_draws(
    model: ModelLike,
    draws: DrawsLike,
    *,
    chains: int = 1,
    thin: int = 1,
    test: GofTest | TestName = "combined",
    level: float = 0.05,
    fdr: float = 0.1,
    seed: int = 0,
    names: Sequence[str] | None = None,
    device: DeviceLike = None,
) -> CheckResult:
    """Are these draws from the posterior whose score is known?

    Draws may depend on those before them in their chain: how far is found in their Stein values, and the
    test allows for it. What the chains are worth is in `test.notes`, and as numbers in
    `test.settings["mixing"]`.

    Args:
        model: the posterior: anything `as_model` takes, in unconstrained coordinates. With a sampler (a
            `LangevinModel`, say) the diagnosis has regions and p-values of points too.
        draws: (chains, n, d) or (n, d) in the model's coordinates; or named draws (a mapping, ArviZ's
            InferenceData, a fit of CmdStanPy or PyStan), which the model's `unconstrain`
            or its names put into its coordinates: see `data.chains`.
        chains: how many chains follow one another in (n, d), or in flat named draws.
        thin: keep every so many draws.
        test: as for `gof_test`, by scores alone; only the cross-fit test takes draws of the model. Tests for
            independent draws alone get thinned ones.
        level, fdr, seed, device: as for `check`.
        names: of the coordinates; the model's own where it has some.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> sc.check_draws(q, 0.5 * q.sample(300, seed=1), names=["mu", "log tau"]).rejected
    True
    """
    check_level(level)
    check_count(thin, name="thin")
    adapted = as_model(model)
    read = read_chains(adapted, draws, chains=chains, names=names)
    labels = column_names(read.names, read.x.shape[2])
    x = read.x[:, ::thin]
    if x.shape[1] < 8:
        raise InputError(f"a chain must have at least 8 draws, got {x.shape[1]}; draws are (chains, n, d)")
    if bool((x.flatten(0, 1).std(0) == 0).any()):
        raise InputError("a coordinate of the draws has one value throughout: it was never moved")
    if bool((still := (x.std(1) == 0).all(-1)).any()):
        stuck = ", ".join(str(k + 1) for k in still.nonzero()[:, 0].tolist())
        raise InputError(f"chain {stuck} of {len(x)} never moved: leave it out, or start it elsewhere")
    points = _scored(adapted, x.flatten(0, 1), labels, device)
    adapted = unbounded(adapted)
    slowness = slowness_if_any(stein_series(points, len(x)), seed=derive(seed, "dependence"))
    chosen = choose_test(test, adapted, len(points))[0]
    slow = slowed(chosen, slowness, len(x)) if slowness > 1 else chosen
    if slow is None:  # a test for independent draws
        step = math.ceil(slowness)
        thin, x, slowness, slow = thin * step, x[:, ::step], 1.0, chosen
        points = points[_every(points, len(read.x), step)]
    mixing = judge_chains(read.x, labels, thin=thin, slowness=slowness)
    if mixing.kept < FEWEST or mixing.kept / mixing.slowness < FEWEST / 2:
        why = mixing.apart or "Run the chains longer."
        raise InputError(f"too few draws to test: {mixing.worth}. {why}")
    result = _tested(adapted, points, slow, labels, mixing, level, seed)
    notes = (*mixing.notes, *read.notes)
    if total := sum(read.divergences):
        where = ", ".join(f"{n} in chain {k + 1}" for k, n in enumerate(read.divergences) if n)
        missed = "the sampler missed a part nearby"
        notes = (*notes, f"{total} draws came from divergent transitions ({where}): {missed}.")
    result = replace(result, notes=(*notes, *result.notes), doubts=(*mixing.doubts, *result.doubts))
    for doubt in (*result.doubts, *map(str, result.caveats)):
        warnings.warn(doubt, DoubtfulWarning, stacklevel=3)  # past @without
    looked_at = _every(points, len(x), math.ceil(slowness))  # rows that hardly depend on each other
    if len(looked_at) < FEWEST:
        looked_at = _every(points, len(x), 1)
    diagnosis = diagnose(
        adapted,
        points[looked_at],
        result,
        labels,
        level=level,
        fdr=fdr,
        seed=seed,
        whole=points,
        lengths=Blocks.of(len(points), len(x), slowness).lengths if slowness > 1 else None,
        in_order=slowness > 1,
    )
    return replace(diagnosis, rows=DrawRows.of(looked_at.cpu(), len(read.x), read.x.shape[1], thin))


class DrawRows(Rows):
    """Draws by chain, counted from 1, and place in it, counted from 0, as in every message."""

    @classmethod
    def of(cls, rows: Tensor, chains: int, draws: int, thin: int) -> "DrawRows":
        """Some of the draws that are left when every so many of each chain are kept."""
        of_chain = -(-draws // thin)
        chain, draw = rows // of_chain, rows % of_chain * thin
        names = [f"chain {c + 1}, draw {k}" for c, k in zip(chain.tolist(), draw.tolist(), strict=True)]
        return cls((chain * draws + draw).numpy(), None, np.array(names))

    def name(self, k: int) -> str:
        assert self.ids is not None
        return f"{self.numbers[k]} ({self.ids[k]})"


def _tested(
    model: Model,
    points: ScoredPoints,
    test: GofTest,
    names: Sequence[str],
    mixing: Mixing,
    level: float,
    seed: int,
) -> GofResult:
    drawn_from = model if isinstance(test, CrossFit) else None
    rows = torch.linspace(0, len(points) - 1, max(50, min(_LOOKED_AT, round(mixing.kept / mixing.slowness))))
    constrained = tuple(_constrained(model, points[rows.long().to(points.x.device)], names))
    try:
        (result,) = test.run(drawn_from, points.alone(), level=level, seeds=[seed])
    except InputError as error:  # far out, as draws in another space may be
        raise InputError(" ".join([*map(str, constrained), str(error)])) from None
    all_caveats = caveats_of(result, model, points, names)
    caveats = [caveat for caveat in all_caveats if caveat.kind not in _OF_CHAINS]
    disagreements = mixing.caveats(rejected=result.rejected)
    result = replace(result, caveats=(*disagreements, *constrained, *caveats), subject=DRAWS)
    return replace(result, settings={**result.settings, "mixing": asdict(mixing)})


def _every(points: ScoredPoints, chains: int, step: int) -> Tensor:
    """Rows of every so many draws of each chain."""
    return torch.arange(len(points)).view(chains, -1)[:, ::step].flatten().to(points.x.device)


def judge_chains(x: Tensor, names: Sequence[str], *, thin: int = 1, slowness: float = 1.0) -> Mixing:
    """Effective sample size and R-hat of chains (chains, n, d)."""
    x = x.to(torch.float64)
    chains, steps, _ = x.shape
    halves = torch.cat([x[:, : steps // 2], x[:, -(steps // 2) :]])
    worth = (effective_draws(halves) / halves.shape[1]).clamp(max=1.0)
    worst, rhat = int(worth.argmin()), potential_scale(x)
    return Mixing(
        chains=chains,
        draws=steps,
        effective=chains * steps * (float(worth[worst]) if slowness > 1 or thin > 1 else 1.0),
        slowest=names[worst],
        rhat=float(rhat.max()),
        apart=_apart(x, rhat, names),
        thin=thin,
        kept=chains * -(-steps // thin),
        slowness=slowness,
    )


def _apart(x: Tensor, rhat: Tensor, names: Sequence[str]) -> str:
    """The chain whose mean is furthest from those of the others, in the coordinate of the largest R-hat."""
    chains, steps, _ = x.shape
    j = int(rhat.argmax())
    if float(rhat[j]) <= _APART + _RHAT_NOISE / steps:
        return ""
    start = f"R-hat of {names[j]} is {float(rhat[j]):.2f}: "
    if chains == 1:
        return start + "the first and the second half of the chain disagree."
    means = x[:, :, j].mean(1)
    others = (means.sum() - means) / (chains - 1)
    within = x[:, :, j].std(1).median()
    gap = (means - others) / within
    k = int(gap.abs().argmax())
    side = "above" if float(gap[k]) > 0 else "below"
    far = f"chain {k + 1} lies {abs(float(gap[k])):.1f} of its spread {side} the others"
    return f"{start}the chains have not met; {far}."


def _scored(model: Model, x: Tensor, names: Sequence[str], device: DeviceLike) -> ScoredPoints:
    try:
        return model_and_points(model, x, device=device)[1]
    except InputError as error:
        positive = [name for name, column in zip(names, x.T, strict=True) if bool((column > 0).all())]
        suspects = [name for name in positive if name.startswith("log")]
        if not suspects:
            raise
        question = _did_you_pass(suspects[0])
        raise InputError(f"{error}; {listed(suspects, 4)} positive in all draws: {question}") from None


def _constrained(model: Model, some: ScoredPoints, names: Sequence[str]) -> Iterator[Caveat]:
    """Positive columns whose scores contradict them, and would not so at their logarithms."""
    for j in (some.x > 0).all(0).nonzero()[:, 0].tolist():
        offsets = _off(some.x[:, j], some.score[:, j])
        if offsets[0] < _OFF[0] and offsets[1] < _OFF[1]:
            continue
        logged = some.x.clone()
        logged[:, j] = logged[:, j].log()
        try:
            score = answer(lambda x=logged: model.score(x), "model.score")  # type: ignore[misc]
        except ModelError:
            continue
        limits = zip(offsets, _off(logged[:, j], score[:, j].to(some.x)), _OFF, _RIGHT, strict=True)
        if any(raw > off and log < right for raw, log, off, right in limits):
            yield Caveat(
                "constrained draws",
                f"{names[j]} is positive in all draws, and the score fits its logarithm: "
                f"{_did_you_pass(names[j])}",
                grave=True,
            )


def _did_you_pass(name: str) -> str:
    bare = name.removeprefix("log").strip("_ ()") if name.startswith("log") else ""
    return f"did you pass {bare}?" if bare else "is that the model's coordinate?"


def _off(x: Tensor, score: Tensor) -> tuple[float, float]:
    """Mean of a score in standard errors, and its size in spreads of the column: 0.7 for a normal one."""
    mean = float(score.mean().abs() / score.std().clamp(min=1e-300)) * math.sqrt(len(score))
    size = float(score.abs().median() * (x.quantile(0.75) - x.quantile(0.25))) / 1.35
    return tuple(v if math.isfinite(v) else math.inf for v in (mean, size))  # type: ignore[return-value]
