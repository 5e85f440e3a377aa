"""Draws from a model that has only a score or an energy: Metropolis-adjusted Langevin chains."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from warnings import warn

import torch
from torch import Tensor

from steincritic.errors import DoubtfulWarning, InputError, ModelError, check_count, check_positive
from steincritic.models.base import DensityModel, Described, Model, ModelLike, as_model, dimension, pass_on
from steincritic.models.bounded import unbounded
from steincritic.models.mixing import effective_draws, potential_scale
from steincritic.rng import Source, generator
from steincritic.shapes import PerPoint, Points

_TRACE = 10_000_000  # numbers kept of the pilot chains, to judge how they mix
_FEW = 5.0  # independent draws that a chain must be worth to have forgotten its start
_WINDOWS = 8  # of the warm-up, each with new scales; the last two are one
_APART = 1.1  # R-hat beyond which chains have not met


@dataclass(frozen=True, kw_only=True)
class Langevin:
    """How chains are run.

    Every draw comes from a chain of its own, so draws are independent. A few pilot chains run first and
    find the step size and the scale of each coordinate; the chains repeat their steps.
    """

    warmup: int = 400  # steps in which step size and scales are found; once at each temperature
    steps: int = 400  # steps after that, at the size found
    step: float = 0.1  # to begin with
    acceptance: float = 0.57  # share of proposals to accept; the best for long chains [roberts1998]
    temperatures: tuple[float, ...] = ()  # passed before temperature 1, such as (10, 3): annealing
    pilots: int = 64

    def __post_init__(self) -> None:
        for name in ("warmup", "steps"):
            check_count(getattr(self, name), name=name, least=10)
        check_count(self.pilots, name="pilots", least=4)
        check_positive(self.step, name="step")
        for temperature in self.temperatures:
            check_positive(temperature, name="every temperature")
        if not 0 < self.acceptance < 1:
            raise InputError(f"acceptance must lie in (0, 1), got {self.acceptance}")


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What the pilot chains found."""

    schedule: tuple[tuple[tuple[float, Tensor], ...], ...]  # step size and scales (d,), by rung and step
    step: float  # size after warm-up, in units of the scales
    acceptance: float  # share of proposals accepted after warm-up
    ess: float  # independent draws that one chain is worth after warm-up, in its slowest coordinate
    rhat: float  # spread of all chains over that within one, in the worst coordinate: 1 if they mix

    @property
    def mixed(self) -> bool:
        return self.ess >= _FEW and self.rhat <= _APART

    def __repr__(self) -> str:
        return (
            f"Tuned(step={self.step:.3g}, acceptance={self.acceptance:.2f}, each chain worth "
            f"ess={self.ess:.3g} independent draws, rhat={self.rhat:.3f})"
        )


class LangevinModel(Described):
    """A model known by its score or energy, with a sampler.

    Where there is a log-density the chains are corrected by it (MALA), so their limit is exact. Where
    there is only a score, differences of the log-density are its line integrals along each step, by
    Lobatto's rule with four nodes: exact up to the seventh power of a step.

    Args:
        model: anything `as_model` takes.
        dim: number of coordinates, where the model does not state it.
        settings: steps, temperatures, aims.
        start: where chains begin, `start(n, generator)` of shape (n, d), the generator a CPU's; standard
            normal if left out.
        ladder: models to pass before this one, the easiest first; noise levels of a diffusion net, say.

    `tuned` reports step size, acceptance, effective sample size and R-hat. A model whose weights have
    changed since needs a new LangevinModel.

    >>> q = LangevinModel(lambda x: -(x**4).sum(-1), dim=2)
    >>> q.sample(3, seed=0).shape
    torch.Size([3, 2])
    """

    def __init__(
        self,
        model: ModelLike,
        dim: int | None = None,
        *,
        settings: Langevin | None = None,
        start: Callable[[int, torch.Generator], Tensor] | None = None,
        ladder: Sequence[ModelLike] = (),
    ) -> None:
        self.model: Model = unbounded(as_model(model))
        self.settings = settings or Langevin()
        stated = dimension(self.model)
        if dim is not None:
            check_count(dim, name="dim")
        if (dim or stated) is None:
            raise InputError("the model does not state its number of coordinates: pass dim=")
        if stated is not None and dim not in (None, stated):
            raise InputError(f"the model has {stated} coordinates, but dim={dim}")
        self.dim: int = dim or stated  # type: ignore[assignment]
        self.like = getattr(self.model, "like", torch.empty(0, dtype=torch.float64))
        self._start = start
        betas = (*(1 / t for t in self.settings.temperatures), 1.0)
        self._rungs = [(as_model(m), 1.0) for m in ladder] + [(self.model, beta) for beta in betas]
        pass_on(
            self.model, self, "log_prob", "unconstrain", "constrain", "names", "coordinates"
        )  # of posteriors, bounds

    def _about(self) -> str:
        return type(self.model).__name__

    def score(self, x: Points) -> Points:
        return self.model.score(x)

    def sample(self, n: int, *, seed: int = 0) -> Points:
        check_count(n, name="n")
        source = Source(seed, "langevin", device=self.like.device)
        x = self._first(n, source, seed)
        for (model, beta), schedule in zip(self._rungs, self.tuned.schedule, strict=True):
            chains = _Chains(model, beta, x, source)
            for step, scale in schedule:
                chains.move(step, scale)
            x = chains.now.x
        return x

    @cached_property
    def tuned(self) -> Tuned:
        aims, source = self.settings, Source(0, "langevin pilots", device=self.like.device)
        x, step, scale = self._first(aims.pilots, source, 0), aims.step, torch.ones(self.dim).to(self.like)
        schedules = []
        window = max(1, aims.warmup // _WINDOWS)
        for model, beta in self._rungs:
            chains = _Chains(model, beta, x, source)
            schedule = []
            for k in range(aims.warmup):
                since = k - min(k // window, _WINDOWS - 2) * window
                if k and not since:  # take up the scales to which the chains have spread by now
                    spread = chains.now.x.std(0)
                    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
                    step *= float((scale / spread).log().mean().exp())
                    scale = spread
                schedule.append((step, scale))
                accepted = chains.move(step, scale)
                step *= math.exp((1 + since) ** -0.6 * (accepted - aims.acceptance))  # Robbins and Monro
            schedules.append(schedule)
            x = chains.now.x
        return self._judged(chains, schedules, step, scale)

    def _judged(
        self, chains: "_Chains", schedules: list[list[tuple[float, Tensor]]], step: float, scale: Tensor
    ) -> Tuned:
        aims = self.settings
        every = math.ceil(aims.steps * chains.now.x.numel() / _TRACE)
        accepted, trace = 0.0, []
        for k in range(aims.steps):
            accepted += chains.move(step, scale) / aims.steps
            if k % every == 0:
                trace.append(chains.now.x.double())
        traces = torch.stack(trace, 1)  # (pilots, steps, d)
        schedules[-1] += [(step, scale)] * aims.steps
        tuned = Tuned(
            schedule=tuple(map(tuple, schedules)),
            step=step,
            acceptance=accepted,
            ess=float(effective_draws(traces).min()),
            rhat=float(potential_scale(traces).max()),
        )
        if tuned.rhat > _APART and accepted > 0.5 * (1 + aims.acceptance):  # nothing limits the steps
            raise ModelError(
                f"Langevin chains run away: {accepted:.0%} of steps of size "
                f"{step * float(scale.mean()):.2g} are accepted, so the density seems to have no end; check "
                "the sign of the energy, or take a longer warm-up"
            )
        if not tuned.mixed:
            warn(
                f"the Langevin chains have hardly mixed: each is worth {tuned.ess:.2g} independent draws, "
                f"R-hat {tuned.rhat:.2f}; take more steps, or temperatures such as (10, 3) for modes apart",
                DoubtfulWarning,
                stacklevel=5,
            )
        return tuned

    def _first(self, n: int, source: Source, seed: int) -> Points:
        shape = (n, self.dim)
        if self._start is None:
            return source.normals(*shape, dtype=self.like.dtype)
        x = self._start(n, generator(seed, "langevin start"))
        if x.shape != shape:
            raise InputError(f"start({n}, generator) must return shape {shape}, got {tuple(x.shape)}")
        return x.to(self.like)


class _State(NamedTuple):
    x: Points
    score: Points  # of the density to the power beta
    log_prob: PerPoint | None


class _Chains:
    """Parallel chains on a model at an inverse temperature: density q^beta."""

    def __init__(self, model: Model, beta: float, x: Points, source: Source) -> None:
        self.model, self.beta, self.source, self.steps = model, beta, source, 0
        self.now = self._at(x, 0.0)
        if self.now.log_prob is not None and not bool(self.now.log_prob.isfinite().all()):
            raise ModelError(
                "Langevin chains start where the density is zero: pass start= inside its support"
            )

    def move(self, step: float, scale: Tensor) -> float:
        """One proposal for each chain; the mean probability of accepting it."""
        self.steps += 1
        x, score, log_prob = self.now
        z = self.source.normals(*x.shape, dtype=x.dtype)
        forth = _drift(scale * score, step)
        new = self._at(x + scale * (forth + step * z), step)
        back = z + (forth + _drift(scale * new.score, step)) / step  # the noise that would lead back
        log_ratio = self._gain(self.now, new) + 0.5 * (z.square() - back.square()).sum(-1)
        probability = torch.nan_to_num(log_ratio, nan=-math.inf).clamp(max=0).exp()
        rows = self.source.uniforms(len(x), dtype=x.dtype) < probability
        if log_prob is not None and new.log_prob is not None:
            log_prob = torch.where(rows, new.log_prob, log_prob)
        rows_of_x = rows[:, None]
        self.now = _State(
            torch.where(rows_of_x, new.x, x), torch.where(rows_of_x, new.score, score), log_prob
        )
        return float(probability.mean())

    def _at(self, x: Points, step: float) -> _State:
        """The state at points; zero density is no fault, only a place not to go to, all else is finite."""
        score, log_prob = self.beta * self.model.score(x).detach(), None
        bad = ~(x.isfinite() & score.isfinite()).all(-1)
        if isinstance(self.model, DensityModel):
            with torch.no_grad():
                log_prob = self.beta * self.model.log_prob(x)
            bad = (bad | ~log_prob.isfinite()) & (log_prob != -math.inf)
        if not bool(bad.any()):
            return _State(x, score, log_prob)
        chain = int(bad.nonzero()[0])
        if step == 0:
            raise ModelError(
                f"the energy or its gradient is not finite where Langevin chain {chain} begins: check the "
                "energy, or pass start="
            )
        raise ModelError(
            f"Langevin chain {chain} is not finite at step {self.steps}, step size {step:.3g}: check the "
            "sign of the energy, begin with a smaller step, or pass start="
        )

    def _gain(self, a: _State, b: _State) -> PerPoint:
        """log q(b) - log q(a)."""
        if a.log_prob is not None and b.log_prob is not None:
            return b.log_prob - a.log_prob
        along, inner = b.x - a.x, 0.5 / math.sqrt(5)
        middle = sum(self.model.score(a.x + t * along) for t in (0.5 - inner, 0.5 + inner))
        mean = (a.score + b.score + 5 * self.beta * middle) / 12  # Lobatto's weights 1, 5, 5, 1
        return (mean * along).sum(-1)


def _drift(score: Tensor, step: float) -> Tensor:
    """Half a squared step along the score, cut to the noise's length [roberts1996]: steep tails overshoot."""
    length: Tensor = torch.linalg.vector_norm(score, dim=-1, keepdim=True)
    longest = 2 * math.sqrt(score.shape[-1]) / step
    return 0.5 * step**2 * score * (longest / length.clamp_min(longest))
