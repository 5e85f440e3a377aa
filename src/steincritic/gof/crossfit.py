"""Every point tested: cross-fitted critics, with the null by rerunning the whole pipeline on model draws.

The statistic is made of a small panel of numbers, a pure function of a dataset and a seed. K critics, each
trained on all folds but one, are looked at now and then during training: on the fold they have not seen, the
mean over the standard deviation of each coordinate's share of the witness, averaged over folds and looks.

- *sparse*: the largest share, early in training; finds models that are wrong in few coordinates.
- *dense*: the length of the vector of positive shares, late in training; finds models that are wrong
  everywhere, or in a direction of no coordinate, once features are learned.
- *kernel*: a kernel Stein discrepancy; finds smooth differences that are spread thin.

The panel of the observed data stands beside those of B datasets of n model draws; everything is standardized
over the B + 1 runs alike. So under the model the B + 1 values are exchangeable and the rank of the observed
one is an exact p-value, whatever training does inside.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from steincritic.critics.bank import Bank
from steincritic.critics.mlp import MLP
from steincritic.data.frame import Frame, model_frame
from steincritic.data.points import ScoredPoints, fold_sets, sample_points
from steincritic.engine import EngineName, check_engine, spread
from steincritic.errors import DivergedError, InputError, check_count, check_positive
from steincritic.gof.cache import NullCache, fingerprint
from steincritic.gof.null import as_null_tensor, check_draws
from steincritic.gof.result import GofResult
from steincritic.gof.test import sampling_model
from steincritic.models.base import Model, SamplingModel
from steincritic.rng import derive, generator
from steincritic.shapes import NullDraws, PerMember
from steincritic.stein.kernels import RBF
from steincritic.stein.operator import coordinate_blocks, stein_values_by_block
from steincritic.stein.tiles import stein_sums
from steincritic.training.fit import Training, fit_bank
from steincritic.training.progress import StepBar
from steincritic.training.staging import Staged

DRAWS = {"cpu": 59, "cuda": 199}
_STAGING = Staged(initial=3.0, floor=5e-4, decay=0.85)
_KERNEL = RBF(factor=0.125)
_SHARPNESS = 2.0  # of the soft maximum over the panel
_BLOCK = 20  # null datasets drawn together
_UNHASHED = ("draws", "stop_early", "memory_gib", "cache", "null_pool", "engine", "address")  # change no run


@dataclass(frozen=True, kw_only=True)
class CrossFit:
    """The cross-fit test; exact for any sample size and any model that can be sampled.

    Args:
        folds: K; each critic trains on (K - 1)/K of the data.
        draws: B, null datasets; by default 59 on a CPU and 199 on a GPU.
        look: epochs between two looks at the critics.
        early, late: looks up to this share of the epochs make the sparse member, looks from that share
            on the dense one.
        stop_early: give up once so many null statistics reached the observed one (Besag and Clifford
            1991); the p-value stays valid. The standardization then comes from a quarter of the draws,
            which are not ranked.
        memory_gib: bound on the memory of the critics that are trained at a time.
        cache: keep null runs on disk and use them again; a folder, or True for the usual one.
        null_seed: of the null runs, which tests of many datasets share; apart from a test's own seed.
        null_pool: for many datasets: null runs that each test chooses its draws from, by its own seed.
        engine: where null runs are made: "serial" (this process), "local" (processes) or "dask".
        address: of a Dask scheduler; without it a cluster is started on this machine.
    """

    name: ClassVar[str] = "crossfit"

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
    null_seed: int = 0
    null_pool: int | None = None
    engine: EngineName = "serial"
    address: str | None = None

    def __post_init__(self) -> None:
        check_count(self.folds, name="folds", least=2)
        check_count(self.look, name="look")
        check_positive(self.memory_gib, name="memory_gib")
        for name in ("draws", "stop_early", "null_pool"):
            if getattr(self, name) is not None:
                check_count(getattr(self, name), name=name)
        check_engine(self.engine, self.address)
        if self.look > self.training.epochs * min(self.early, 1 - self.late):
            raise InputError(
                f"look = {self.look} epochs is too rare for {self.training.epochs} epochs of training: no "
                "look would fall into the early or the late part"
            )

    def run(
        self, model: Model | None, datasets: ScoredPoints, *, level: float, seeds: Sequence[int]
    ) -> list[GofResult]:
        way_out = "tests split and ksd work without, and LangevinModel(model) adds a sampler"
        sampled = sampling_model(model, why="the cross-fit test", way_out=way_out)
        check_folds(len(datasets), self)
        draws = self.draws or DRAWS.get(datasets.x.device.type, DRAWS["cpu"])
        check_draws(draws, level)
        frame = model_frame(sampled, datasets, seed=0)
        orders = [derive(seed, "order") for seed in seeds]
        shuffled = ScoredPoints.stack(
            [one.shuffled(seed=order) for one, order in zip(datasets.each(), orders, strict=True)]
        )
        observed = panel(frame.enter(shuffled), [derive(seed, "observed") for seed in seeds], self)
        null = NullRuns(sampled, frame, len(datasets), datasets.x, self)
        ranked = [self._ranked(observed[t : t + 1], null, draws, seed) for t, seed in enumerate(seeds)]
        settings = {k: v for k, v in asdict(self).items() if k not in ("cache", "address")}
        settings |= {"draws": draws, "null_pool": self.null_pool or draws}
        return [
            GofResult(
                statistic=statistic,
                null_distribution=as_null_tensor(null_distribution),
                level=level,
                test=self.name,
                threshold="full-pipeline Monte Carlo",
                exact=True,
                n=len(datasets),
                seed=seed,
                notes=null.notes,
                settings=settings,
            )
            for (statistic, null_distribution), seed in zip(ranked, seeds, strict=True)
        ]

    def _ranked(self, observed: "Panel", null: "NullRuns", draws: int, seed: int) -> tuple[float, NullDraws]:
        """The observed statistic and its null draws."""
        if self.stop_early is None:
            runs = null.runs(0, max(draws, self.null_pool or 0))
            if self.null_pool is not None:
                runs = runs[torch.randperm(len(runs), generator=generator(seed, "null choice"))[:draws]]
            values = observed.joined(runs).statistic()
            return float(values[0]), values[1:]
        scale = null.runs(0, pilot := max(20, draws // 4))
        statistic, collected, done = observed.statistic(scale), torch.zeros(0, dtype=torch.float64), 0
        while done < draws and int((collected >= statistic).sum()) < self.stop_early:
            count = min(draws - done, max(self.stop_early, 10))
            fresh = null.runs(pilot + done, count).statistic(scale)
            collected, done = torch.cat([collected, fresh]), done + count
        return float(statistic), collected


def check_folds(n: int, config: CrossFit) -> None:
    if n < 2 * config.folds:
        raise InputError(
            f"x has {n} points; {config.folds} folds need at least two each: collect {2 * config.folds} "
            "points, or use a kernel test"
        )


@dataclass(frozen=True, eq=False)
class Panel:
    """The raw statistics of r datasets, before any standardization."""

    early: Tensor  # (r, k) shares of the witness, early in training
    late: Tensor  # (r, k)
    kernel: Tensor  # (r,)

    def joined(self, other: "Panel") -> "Panel":
        return Panel(*(torch.cat([getattr(self, k), getattr(other, k)]) for k in MEMBERS))

    def __getitem__(self, rows: slice | Tensor) -> "Panel":
        return Panel(*(getattr(self, k)[rows] for k in MEMBERS))

    def __len__(self) -> int:
        return len(self.kernel)

    def statistic(self, scale: "Panel | None" = None) -> Tensor:
        """(r,): a soft maximum of the standardized members.

        Standardized over the r datasets themselves, or over others where a scale is given.
        """
        scale = scale or self
        members = []
        for name, shrink in (("early", _largest), ("late", _length), ("kernel", _itself)):
            own, others = getattr(self, name), getattr(scale, name)
            shares, reference = _standardized(own, others), _standardized(others, others)
            members.append(_standardized(shrink(shares), shrink(reference)))
        return torch.logsumexp(_SHARPNESS * torch.stack(members), dim=0) / _SHARPNESS


MEMBERS = ("early", "late", "kernel")


def _largest(shares: Tensor) -> Tensor:
    return shares.amax(-1)


def _length(shares: Tensor) -> Tensor:
    return shares.clamp(min=0).square().sum(-1).sqrt()


def _itself(value: Tensor) -> Tensor:
    return value


def _standardized(values: Tensor, reference: Tensor) -> Tensor:
    mean, sd = reference.mean(0), reference.std(0)
    varies = sd > 1e-12 * mean.abs()  # beyond rounding
    return (values - mean) / torch.where(varies, sd, torch.ones_like(sd))


def join_all(parts: Sequence[Panel]) -> Panel:
    return Panel(*(torch.cat([getattr(part, k) for part in parts]) for k in MEMBERS))


def panel(datasets: ScoredPoints, seeds: Sequence[int], config: CrossFit) -> Panel:
    """The statistics of (r, n, d) standardized datasets: a pure function of each dataset and its seed."""
    parts = []
    runs, n, d = datasets.x.shape
    for rows in chunks(runs, n, d, config):
        chunk = datasets.sets(rows)
        early, late = _shares(chunk, seeds[rows], config)
        kernel = stein_sums(chunk, [config.kernel]).statistic("u")[:, 0].cpu()
        parts.append(Panel(early, late, kernel))
    return join_all(parts)


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
        self._blocks = coordinate_blocks(held_out.dim)
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


def chunks(runs: int, n: int, d: int, config: CrossFit) -> Iterator[slice]:
    """Datasets whose critics fit the memory budget together."""
    sizes = (d, *config.network.hidden, d)
    weights = sum(a * b + b for a, b in pairwise(sizes))
    activations = 2 * max(config.training.batch_size, n // config.folds) * sum(sizes) * 6
    numbers = 5 * weights + activations + 8 * n * d
    bytes_each = config.folds * numbers * (8 if config.training.dtype == "float64" else 4)
    at_a_time = max(1, int(config.memory_gib * 2**30 / bytes_each))
    for start in range(0, runs, at_a_time):
        yield slice(start, start + at_a_time)


class NullRuns:
    """Panels of datasets drawn from the model: numbered, so that a run is the same whenever it is made."""

    def __init__(self, model: SamplingModel, frame: Frame, n: int, like: Tensor, config: CrossFit) -> None:
        self._model, self._frame, self._n, self._like, self._config = model, frame, n, like, config
        self.notes: tuple[str, ...] = ()
        self._cache = NullCache.at(config.cache)
        settings = {k: v for k, v in asdict(config).items() if k not in _UNHASHED}
        self._key = fingerprint(model, n, like, settings)
        kept = self._cache.get(self._key)
        self._known = None if kept is None else Panel(*(kept[k] for k in MEMBERS))
        if self._known is not None:
            self.notes = (f"{len(self._known)} null runs came from the cache.",)

    def runs(self, start: int, count: int) -> Panel:
        """Runs number start to start + count; those not known yet are made, and kept."""
        have = 0 if self._known is None else len(self._known)
        if have < start + count:
            for fresh in self._made(have, start + count - have):
                self._known = fresh if self._known is None else self._known.joined(fresh)
                self._cache.put(self._key, {k: getattr(self._known, k) for k in MEMBERS})
        assert self._known is not None
        return self._known[start : start + count]

    def _made(self, start: int, count: int) -> Iterator[Panel]:
        """In pieces: of what fits the memory budget, and short ones on a CPU, where that costs nothing."""
        largest = next(chunks(count, self._n, self._like.shape[-1], self._config)).stop
        size = min(largest, _BLOCK) if self._like.device.type == "cpu" else largest
        pieces = [
            range(first, min(first + size, start + count)) for first in range(start, start + count, size)
        ]
        tasks = (self._task(numbers) for numbers in pieces)
        made = spread(_panel_of, tasks, self._config.engine, address=self._config.address)
        ready: dict[int, Panel] = {}  # pieces may end in another order than they began
        with StepBar("null runs", count) as bar, closing(made):
            for k, numbers in enumerate(pieces):
                while k not in ready:
                    ready.update([next(made)])
                yield ready.pop(k)
                bar.advance(len(numbers))

    def _task(self, numbers: range) -> "_Task":
        """All that a piece of null runs needs: scored datasets, so no worker has to know the model."""
        seeds = [derive(self._config.null_seed, "null run", k) for k in numbers]
        return self._datasets(numbers), seeds, self._config

    def _datasets(self, numbers: range) -> ScoredPoints:
        """Datasets by their numbers; drawn in blocks, as a chain sampler is slow for few draws."""
        first, last = numbers.start // _BLOCK, -(-numbers.stop // _BLOCK)
        n, seed = self._n, self._config.null_seed
        blocks = [
            sample_points(self._model, _BLOCK * n, seed=derive(seed, "null block", b), like=self._like)
            for b in range(first, last)
        ]
        rows = slice(numbers.start - first * _BLOCK, numbers.stop - first * _BLOCK)
        return self._frame.enter(ScoredPoints.cat(blocks)).cut(n).sets(rows)


_Task = tuple[ScoredPoints, list[int], CrossFit]


def _panel_of(task: _Task) -> Panel:
    return panel(*task)
