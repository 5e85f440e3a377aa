"""How well chains mix: effective sample size and R-hat of traces (chains, steps, d)."""

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
    covariance = _autocovariances(trace).mean(0)  # (steps, d)
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


def _autocovariances(trace: Tensor) -> Tensor:
    steps = trace.shape[1]
    spectrum = torch.fft.rfft(trace - trace.mean(1, keepdim=True), n=2 * steps, dim=1)
    covariance: Tensor = torch.fft.irfft(spectrum.abs().square(), dim=1)[:, :steps] / steps
    return covariance
