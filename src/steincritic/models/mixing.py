"""How much draws depend on each other: autocorrelation, effective sample size and R-hat.

Traces are (chains, steps, d); every autocorrelation of the library comes from `autocovariances`.
"""

import math

import torch
from torch import Tensor


def effective_draws(trace: Tensor) -> Tensor:
    """(d,): independent draws that one chain is worth on average; autocorrelations summed in pairs
    up to the first that is not positive [geyer1992], and against the spread of all chains."""
    steps = trace.shape[1]
    correlation = autocorrelations(trace)
    pairs = correlation[: steps // 2 * 2].view(-1, 2, trace.shape[2]).sum(1)
    alive = (pairs > 0).to(pairs).cumprod(0)
    time = 2 * (pairs * alive).sum(0) - 1
    return steps / time.clamp_min(1 / steps)


def autocorrelations(trace: Tensor) -> Tensor:
    """(steps, d): by lag, mean over the chains, against the spread of all of them: chains that stay apart
    have correlations that do not die out."""
    steps = trace.shape[1]
    covariance = autocovariances(trace).mean(0)  # (steps, d)
    within = covariance[0] * steps / (steps - 1)
    correlation = 1 - (within - covariance) / _total_variance(trace, within)
    correlation[0] = 1.0
    return correlation


def potential_scale(trace: Tensor) -> Tensor:
    """(d,): R-hat [gelman1992] of chains cut in halves, so that a drift shows too."""
    half = trace.shape[1] // 2
    halves = torch.cat([trace[:, :half], trace[:, -half:]])
    within = halves.var(1).mean(0)
    return (_total_variance(halves, within) / within).sqrt()


def _total_variance(trace: Tensor, within: Tensor) -> Tensor:
    steps = trace.shape[1]
    return (steps - 1) / steps * within + trace.mean(1).var(0)


def autocovariances(trace: Tensor, *, around: Tensor | None = None) -> Tensor:
    """(chains, steps, d): by lag, of each chain around its own mean, or a given one, divided by the steps
    (by FFT)."""
    steps = trace.shape[1]
    center = trace.mean(1, keepdim=True) if around is None else around
    spectrum = torch.fft.rfft(trace - center, n=2 * steps, dim=1)
    covariance: Tensor = torch.fft.irfft(spectrum.abs().square(), dim=1)[:, :steps] / steps
    return covariance


def lag_correlation(values: Tensor) -> float:
    """Of each of (n,) values with the next; 0 where they do not vary."""
    covariance = autocovariances(values[None, :, None])[0, :2, 0]
    varies = float(covariance[0]) > torch.finfo(values.dtype).eps * float(values.square().mean())
    return float(covariance[1] / covariance[0]) if len(values) > 1 and varies else 0.0


def autocorrelation_time(series: Tensor) -> float:
    """The largest integrated autocorrelation time of columns (n, k), or of (chains, steps, k) around their
    common mean; at least 1 [geyer1992].

    Sums of neighboring autocorrelations are positive for a reversible chain; the first that does not
    stand out of the noise of independent draws ends the sum.
    """
    trace = series if series.ndim == 3 else series[None]
    (chains, steps, _), slowest = trace.shape, 1.0
    noise = 3 * math.sqrt(2 / (chains * steps))
    for part in trace.split(8, dim=2):  # a few at a time, for memory
        by_lag = autocovariances(part, around=part.mean((0, 1))).mean(0)
        covariance = by_lag[: steps - steps % 2].T  # (k, steps)
        pairs = covariance.reshape(len(covariance), -1, 2).sum(2)
        pairs = pairs / covariance[:, :1].clamp_min(torch.finfo(torch.float64).tiny)
        initial = torch.where((pairs <= noise).cumsum(1) == 0, pairs, torch.zeros_like(pairs)).sum(1)
        slowest = max(slowest, float((2 * initial - 1).max()))
    return slowest
