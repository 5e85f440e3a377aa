"""watch: an e-process over a stream; look at it after every batch and stop whenever you like."""

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from steincritic.data.points import PointsLike, ScoredPoints, scored
from steincritic.devices import DeviceLike, resolve_device
from steincritic.errors import DoubtfulWarning, InputError
from steincritic.gof.betting import Sequential, log_evalues, train_bettor, wealth_path
from steincritic.gof.test import sampling_model
from steincritic.gof.watch_state import WatchState
from steincritic.models.base import ModelLike, SamplingModel, as_model
from steincritic.models.bounded import unbounded
from steincritic.rng import derive


def watch(
    model: ModelLike,
    stream: Iterable[PointsLike],
    *,
    test: Sequential | None = None,
    level: float | None = None,
    seed: int | None = None,
    state: WatchState | None = None,
    device: DeviceLike = None,
) -> Iterator[WatchState]:
    r"""Test H0: every point of a stream comes from q, at every moment of the stream.

    A gambler starts with wealth 1 and bets on each point by a critic trained on earlier points alone.
    Under H0 each bet has mean at most one given the past, so
    $$P(\sup_t W_t \ge 1/\text{level}) \le \text{level}:$$
    the verdict may be read after every batch, and the stream may stop for any reason. The wealth is the
    mean over accounts that bet with different force; when a new critic comes, all accounts share the
    wealth equally again, since what suited the old critic need not suit the new one.

    Args:
        model: q; it must have a sampler whose draws are independent.
        stream: batches of points in the order they came: (n, d) tensors, arrays, frames or ScoredPoints.
        level: the accepted probability of ever raising a false alarm, 0.05 by default.
        seed: decides every random choice, 0 by default.
        test: how bets are made.
        state: go on from here, exactly as if the stream had never been interrupted. It brings its own
            level, seed and test.
        device: where to compute; a GPU where there is one by default.

    A batch that cannot be used raises InputError and leaves no trace in the last state.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> batches = (q.sample(50, seed=k) + 1.0 for k in range(4))
    >>> [state.rejected for state in watch(q, batches)]
    [False, True, True, True]
    """
    sampled = sampling_model(
        unbounded(as_model(model)), why="watching", way_out="pass a (score, sample) pair"
    )
    single = isinstance(stream, ScoredPoints | str | Path) or getattr(stream, "ndim", 3) < 3
    if single or not isinstance(stream, Iterable):
        raise InputError(
            f"stream must be an iterable of (n, d) batches, got {type(stream).__name__}; for one batch "
            "pass [x]"
        )
    if state is None:
        state = WatchState(
            test=test or Sequential(),
            level=0.05 if level is None else level,
            seed=0 if seed is None else seed,
            log_wealths=torch.zeros((test or Sequential()).accounts, dtype=torch.float64),
            log_maximum=0.0,
        )
    for name, value in {"level": level, "seed": seed, "test": test}.items():
        if value is not None and value != (begun := getattr(state, name)):
            raise InputError(f"the state was begun with {name}={begun!r}, which cannot change to {value!r}")
    if state.bettor is not None and state.past is not None:
        state = replace(state, bettor=state.bettor.to(resolve_device(device, state.past.x)))
    return _states(sampled, stream, state, device)


def _states(
    model: SamplingModel, stream: Iterable[PointsLike], state: WatchState, device: DeviceLike
) -> Iterator[WatchState]:
    for batch in stream:
        points = _accepted(model, batch, state)
        size, steps = state.test.longest, []
        for start in range(0, len(points), size):
            piece = points[start : start + size]
            state, gained = _after(model, piece, _trained(model, state, device))
            steps.append(gained)
        state = replace(state, batches=state.batches + 1, log_evalues=torch.cat(steps))
        yield state


def _trained(model: SamplingModel, state: WatchState, device: DeviceLike) -> WatchState:
    """The state with a new critic, if one is due."""
    test, bettor, past = state.test, state.bettor, state.past
    due = test.first if bettor is None else test.growth * bettor.trained_on
    if past is None or len(past) < due:
        return state
    number = bettor.number + 1 if bettor else 1
    bettor, doubts = train_bettor(model, past, test, number=number, seed=state.seed, device=device)
    for doubt in set(doubts) - set(state.notes):
        warnings.warn(doubt, DoubtfulWarning, stacklevel=4)
    shared = torch.full_like(state.log_wealths, state.log_wealth)
    notes = tuple(dict.fromkeys((*state.notes, *doubts)))
    return replace(state, bettor=bettor, log_wealths=shared, notes=notes)


def _after(model: SamplingModel, points: ScoredPoints, state: WatchState) -> tuple[WatchState, Tensor]:
    """The state after some points, and the log factor by which each changed the wealth."""
    start, past = state.points, state.past
    joined = points if past is None else ScoredPoints.cat([past, points])
    if state.bettor is None:
        flat = torch.full((len(points),), state.log_wealth, dtype=torch.float64)
        path = torch.cat([state.log_path, flat])
        return replace(state, past=joined, log_path=path), torch.zeros_like(flat)
    seed = derive(state.seed, "bets", start)
    bets = log_evalues(state.bettor, model, points, state.test, seed=seed)
    paths, wealth = wealth_path(state.log_wealths, bets)
    crossed = (wealth >= -math.log(state.level)).nonzero()
    rejected_at = state.rejected_at
    if rejected_at is None and len(crossed):
        rejected_at = start + int(crossed[0]) + 1
    gained = wealth.diff(prepend=torch.tensor([state.log_wealth], dtype=torch.float64))
    after = replace(
        state,
        past=joined,
        log_wealths=paths[-1],
        log_maximum=max(state.log_maximum, float(wealth.max())),
        log_path=torch.cat([state.log_path, wealth]),
        rejected_at=rejected_at,
    )
    return after, gained


def _accepted(model: SamplingModel, batch: PointsLike, state: WatchState) -> ScoredPoints:
    name = f"batch {state.batches + 1}"
    try:
        points = scored(model, batch, name=name)
        if points.x.ndim != 2:
            raise InputError(f"{name} must have shape (n, d), got {tuple(points.x.shape)}")
        if state.past is not None and points.dim != state.past.dim:
            raise InputError(f"{name} has {points.dim} dimensions, the stream before it {state.past.dim}")
    except InputError as error:
        raise type(error)(f"{error} (the state before this batch stands: go on with state=...)") from error
    return points if state.past is None else points.to(state.past.x)
