"""Every point tested: cross-fitted critics, with the null by rerunning the whole pipeline on model draws.

The statistic of a dataset is a small panel of three. K critics, each trained on all folds but one, are
looked at now and then during training: on the fold they have not seen, the mean over the standard
deviation of each coordinate's share of the witness, averaged over folds and looks.

- *sparse*: the largest share, early in training; finds models that are wrong in few coordinates.
- *dense*: the length of the vector of positive shares, late in training; finds models that are wrong
  everywhere, or in a direction of no coordinate, once features are learned.
- *kernel*: a kernel Stein discrepancy; finds smooth differences that are spread thin.

The same function of (dataset, seed) is applied to the observed data and to B datasets of n model
draws; everything is standardised over the B + 1 runs alike. So under the model the B + 1 values are
exchangeable and the rank of the observed one is an exact p-value, whatever training does inside.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.points import Frame, ScoredPoints, sample_points, scored
from steincritic.errors import DivergedError, InputError, ModelError, check_count, check_positive
from steincritic.gof.cache import NullCache, fingerprint
from steincritic.gof.null import as_null_tensor, check_draws
from steincritic.gof.result import GofResult
from steincritic.models.base import SamplingModel, as_model
from steincritic.rng import derive
from steincritic.shapes import NullDraws, PerMember
from steincritic.stein.kernels import RBF
from steincritic.stein.operator import stein_values_by_block
from steincritic.stein.tiles import stein_sums
from steincritic.training.fit import Training, fit_bank
from steincritic.training.progress import StepBar
from steincritic.training.staging import Staged
from steincritic.witness import best_device, model_frame

DRAWS = {"cpu": 59, "cuda": 199}
_STAGING = Staged(initial=3.0, floor=5e-4, decay=0.85)
_KERNEL = RBF(factor=0.125)
_SHARES = 64  # coordinates are looked at singly up to here, in blocks beyond
_SHARPNESS = 2.0  # of the soft maximum over the panel


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """Settings of the cross-fit test; the defaults serve all problems alike.

    Args:
        folds: K; each critic trains on (K - 1)/K of the data.
        draws: B, null datasets; by default 59 on a CPU and 199 on a GPU.
        look: epochs between two looks at the critics.
        early, late: looks up to this share of the epochs make the sparse member, looks from that share
            on the dense one.
        stop_early: give up once so many null statistics reached the observed one (Besag and Clifford
            1991); the p-value stays valid. The standardisation then comes from a quarter of the draws,
            which are not ranked.
        memory_gib: bound on the memory of the critics that are trained at a time.
        cache: keep null runs on disk and use them again; a folder, or True for the usual one.
    """

    folds: int = 5
    draws: int | None = None
    look: int = 5
    early: float = 1 / 3
    late: float = 1 / 2
    kernel: RBF = _KERNEL
    staging: Staged = _STAGING
    network: MLP = field(default_factory=MLP)
    training: Training = field(default_factory=Training)
    stop_early: int | None = None
    memory_gib: float = 4.0
    cache: bool | Path = True

    def __post_init__(self) -> None:
        check_count(self.folds, name="folds", least=2)
        check_count(self.look, name="look")
        check_positive(self.memory_gib, name="memory_gib")
        if self.draws is not None:
            check_count(self.draws, name="draws")
        if self.stop_early is not None:
            check_count(self.stop_early, name="stop_early")
        if self.look > self.training.epochs * min(self.early, 1 - self.late):
            raise InputError(
                f"look = {self.look} epochs is too rare for {self.training.epochs} epochs of training: no "
                "look would fall into the early or the late part"
            )


@dataclass(frozen=True, eq=False)
class Panel:
    """The raw statistics of r datasets, before any standardisation."""

    early: Tensor  # (r, k) shares of the witness, early in training
    late: Tensor  # (r, k)
    kernel: Tensor  # (r,)

    def joined(self, other: "Panel") -> "Panel":
        return Panel(*(torch.cat([getattr(self, k), getattr(other, k)]) for k in _MEMBERS))

    def __getitem__(self, rows: slice | Tensor) -> "Panel":
        return Panel(*(getattr(self, k)[rows] for k in _MEMBERS))

    def __len__(self) -> int:
        return len(self.kernel)

    def statistic(self, scale: "Panel | None" = None) -> Tensor:
        """(r,): a soft maximum of the standardised members.

        Standardised over the r datasets themselves, or over others where a scale is given.
        """
        scale = scale or self
        members = []
        for name, shrink in (("early", _largest), ("late", _length), ("kernel", _itself)):
            own, others = getattr(self, name), getattr(scale, name)
            shares, reference = _standardised(own, others), _standardised(others, others)
            members.append(_standardised(shrink(shares), shrink(reference)))
        return torch.logsumexp(_SHARPNESS * torch.stack(members), dim=0) / _SHARPNESS


_MEMBERS = ("early", "late", "kernel")


def _largest(shares: Tensor) -> Tensor:
    return shares.amax(-1)


def _length(shares: Tensor) -> Tensor:
    return shares.clamp(min=0).square().sum(-1).sqrt()


def _itself(value: Tensor) -> Tensor:
    return value


def _standardised(values: Tensor, reference: Tensor) -> Tensor:
    mean, sd = reference.mean(0), reference.std(0)
    varies = sd > 1e-12 * mean.abs()  # beyond rounding
    return (values - mean) / torch.where(varies, sd, torch.ones_like(sd))


def crossfit_test(
    model: Any,
    x: Any,
    *,
    level: float = 0.05,
    seed: int = 0,
    config: CrossFit | None = None,
    device: torch.device | str | None = None,
) -> GofResult:
    """Test H0: p = q with every point; exact for any sample size and any model that can be sampled."""
    config = config or CrossFit()
    model = as_model(model)
    if not isinstance(model, SamplingModel):
        raise ModelError(
            "the cross-fit test reruns itself on draws of the model, which has no sample(n, seed=0); "
            'use method="split" with threshold "bootstrap-t", or method="ksd"'
        )
    points = scored(model, x)
    points = points.to(device=device if device is not None else best_device(points.x))
    check_folds(len(points), config)
    draws = config.draws or DRAWS[points.x.device.type]
    check_draws(draws, level)
    frame = model_frame(model, points, seed=0)
    observed = panel(
        _one(frame.enter(points.shuffled(seed=derive(seed, "order")))), [derive(seed, "observed")], config
    )
    null = NullRuns(model, frame, points, config)
    statistic, null_distribution = _ranked(observed, null, draws, config)
    return GofResult(
        statistic=statistic,
        null_distribution=as_null_tensor(null_distribution),
        level=level,
        method="crossfit",
        threshold="full-pipeline Monte Carlo",
        exact=True,
        n=len(points),
        seed=seed,
        notes=null.notes,
        settings={k: v for k, v in asdict(config).items() if k != "cache"} | {"draws": draws},
    )


def check_folds(n: int, config: CrossFit) -> None:
    if n < 2 * config.folds:
        raise InputError(
            f"x has {n} points; {config.folds} folds need at least two each: collect {2 * config.folds} "
            "points, or use a kernel test"
        )


def _ranked(observed: Panel, null: "NullRuns", draws: int, config: CrossFit) -> tuple[float, NullDraws]:
    """The observed statistic and its null draws."""
    if config.stop_early is None:
        values = observed.joined(null.runs(0, draws)).statistic()
        return float(values[0]), values[1:]
    scale = null.runs(0, pilot := max(20, draws // 4))
    statistic, collected, done = observed.statistic(scale), torch.zeros(0, dtype=torch.float64), 0
    while done < draws and int((collected >= statistic).sum()) < config.stop_early:
        count = min(draws - done, max(config.stop_early, 10))
        fresh = null.runs(pilot + done, count).statistic(scale)
        collected, done = torch.cat([collected, fresh]), done + count
    return float(statistic), collected


class NullRuns:
    """Panels of datasets drawn from the model: numbered, so that a run is the same whenever it is made."""

    def __init__(self, model: SamplingModel, frame: Frame, points: ScoredPoints, config: CrossFit) -> None:
        self._model, self._frame, self._like, self._config = model, frame, points, config
        self.notes: tuple[str, ...] = ()
        self._cache = NullCache.at(config.cache)
        settings = {k: v for k, v in asdict(config).items() if k not in _UNHASHED}
        self._key = fingerprint(model, len(points), points.x, settings)
        kept = self._cache.get(self._key)
        self._known = None if kept is None else Panel(*(kept[k] for k in _MEMBERS))
        if self._known is not None:
            self.notes = (f"{len(self._known)} null runs came from the cache.",)

    def runs(self, start: int, count: int) -> Panel:
        """Runs number start to start + count; those not known yet are made, and kept."""
        have = 0 if self._known is None else len(self._known)
        if have < start + count:
            fresh = self._make(have, start + count - have)
            self._known = fresh if self._known is None else self._known.joined(fresh)
            self._cache.put(self._key, {k: getattr(self._known, k) for k in _MEMBERS})
        assert self._known is not None
        return self._known[start : start + count]

    def _make(self, start: int, count: int) -> Panel:
        parts = []
        with StepBar("null runs", count) as bar:
            for rows in _chunks(count, len(self._like), self._like.dim, self._config):
                numbers = range(start + rows.start, start + min(rows.stop, count))
                seeds = [derive(0, "null run", k) for k in numbers]
                parts.append(panel(self._datasets(numbers), seeds, self._config))
                bar.advance(len(numbers))
        return _join_all(parts)

    def _datasets(self, numbers: range) -> ScoredPoints:
        """Datasets by their numbers; drawn in blocks, as a chain sampler is slow for few draws."""
        first, last = numbers.start // _BLOCK, -(-numbers.stop // _BLOCK)
        n, d = len(self._like), self._like.dim
        blocks = [
            sample_points(self._model, _BLOCK * n, seed=derive(0, "null block", b), like=self._like.x)
            for b in range(first, last)
        ]
        drawn = self._frame.enter(
            ScoredPoints(torch.cat([b.x for b in blocks]), torch.cat([b.score for b in blocks]))
        )
        rows = slice(numbers.start - first * _BLOCK, numbers.stop - first * _BLOCK)
        return ScoredPoints(drawn.x.view(-1, n, d)[rows], drawn.score.view(-1, n, d)[rows])


_BLOCK = 20  # null datasets drawn together
_UNHASHED = ("draws", "stop_early", "memory_gib", "cache")  # settings that change no run


def _join_all(parts: Sequence[Panel]) -> Panel:
    return Panel(*(torch.cat([getattr(part, k) for part in parts]) for k in _MEMBERS))


def panel(datasets: ScoredPoints, seeds: Sequence[int], config: CrossFit) -> Panel:
    """The statistics of (r, n, d) standardised datasets: a pure function of each dataset and its seed."""
    parts = []
    runs, n, d = datasets.x.shape
    for rows in _chunks(runs, n, d, config):
        chunk = ScoredPoints(datasets.x[rows], datasets.score[rows])
        early, late = _shares(chunk, seeds[rows], config)
        kernel = stein_sums(chunk, [config.kernel]).statistic("u")[:, 0].cpu()
        parts.append(Panel(early, late, kernel))
    return _join_all(parts)


def _shares(datasets: ScoredPoints, seeds: Sequence[int], config: CrossFit) -> tuple[Tensor, Tensor]:
    """(r, k) early and late: each coordinate's mean over sd on points not trained on."""
    train, test = fold_sets(datasets, config.folds)
    looks = _Looks(test.to(dtype=getattr(torch, config.training.dtype)), config)
    fitted = fit_bank(
        train,
        staging=config.staging,
        seeds=[derive(seed, "fold", k) for seed in seeds for k in range(config.folds)],
        network=config.network,
        training=config.training,
        observers=[looks],
    )
    try:
        fitted.require_success()
    except DivergedError as error:
        raise DivergedError(f"a critic of the cross-fit did not train: {error}") from None
    return looks.average(looks.early), looks.average(looks.late)


class _Looks:
    """An observer that looks at the critics' shares on held-out points every few epochs."""

    def __init__(self, held_out: ScoredPoints, config: CrossFit) -> None:
        self._held_out, self._config = held_out, config
        width = -(-held_out.dim // _SHARES)
        self._blocks = [slice(j, j + width) for j in range(0, held_out.dim, width)]
        self.early: list[Tensor] = []
        self.late: list[Tensor] = []

    def __call__(self, epoch: int, bank: Bank, lam: PerMember) -> None:
        done, epochs = epoch + 1, self._config.training.epochs
        is_early, is_late = done <= self._config.early * epochs, done >= self._config.late * epochs
        if done % self._config.look or not (is_early or is_late):
            return
        f, parts = bank.field_and_parts(self._held_out.x, self._blocks)
        shares = stein_values_by_block(self._held_out.score, f, parts, self._blocks)  # (e, m, k)
        ratio = shares.mean(1) / shares.std(1).clamp(min=torch.finfo(shares.dtype).tiny)
        if is_early:
            self.early.append(ratio)
        if is_late:
            self.late.append(ratio)

    def average(self, looks: list[Tensor]) -> Tensor:
        """Over looks and folds: (r, k)."""
        mean = torch.stack(looks).mean(0)
        return mean.view(-1, self._config.folds, mean.shape[-1]).mean(1).to("cpu", torch.float64)


def fold_sets(datasets: ScoredPoints, count: int) -> tuple[ScoredPoints, ScoredPoints]:
    """Training and tested points of every dataset and fold, (r * folds, ., d) each.

    Folds have one size, so that all critics are one bank; where n is no multiple of it a few points
    are tested twice.
    """
    n = len(datasets)
    size = -(-n // count)
    tested = torch.stack([(k * n // count + torch.arange(size)) % n for k in range(count)])
    mask = torch.ones(count, n, dtype=torch.bool).scatter_(1, tested, False)
    trained = mask.nonzero()[:, 1].view(count, n - size)

    def gathered(index: Tensor) -> ScoredPoints:
        index = index.to(datasets.x.device)
        return ScoredPoints(*(t[:, index].flatten(0, 1) for t in (datasets.x, datasets.score)))

    return gathered(trained), gathered(tested)


def _one(points: ScoredPoints) -> ScoredPoints:
    return ScoredPoints(points.x[None], points.score[None])


def _chunks(runs: int, n: int, d: int, config: CrossFit) -> Iterator[slice]:
    """Datasets whose critics fit the memory budget together."""
    sizes = (d, *config.network.hidden, d)
    weights = sum(a * b + b for a, b in pairwise(sizes))
    activations = 2 * max(config.training.batch_size, n // config.folds) * sum(sizes) * 6
    numbers = 5 * weights + activations + 8 * n * d
    bytes_each = config.folds * numbers * (8 if config.training.dtype == "float64" else 4)
    at_a_time = max(1, int(config.memory_gib * 2**30 / bytes_each))
    for start in range(0, runs, at_a_time):
        yield slice(start, start + at_a_time)
