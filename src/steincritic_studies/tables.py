"""Tables in Markdown, written from records."""

import math
from statistics import NormalDist
from typing import Any

from steincritic_studies.record import Record


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def document(record: Record, *parts: str) -> str:
    """The parts, and how the record was made."""
    environment, seconds = record.environment, record.seconds
    times = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    made = (
        f"Made by `{record.command}` (seed {record.seed}) on {environment['device']}, torch "
        f"{environment['torch']}; {times}."
    )
    return "\n\n".join([*parts, made]) + "\n"


def devices(record: Record) -> str:
    """Where the jobs of a sweep ran; they may have been gathered from several machines."""
    return "Jobs ran on: " + ", ".join(sorted({row["device"] for row in record.results["rows"]})) + "."


def mean_and_error(value: dict[str, Any] | None, digits: int = 3) -> str:
    """The mean ± its standard error; a dash for what was not measured."""
    return "–" if value is None else f"{value['mean']:.{digits}f} ± {value['se']:.{digits}f}"


LEVEL = 0.05
CONFIDENCE = 0.999


def band(tests: int, null_sets: int) -> tuple[float, float]:
    """Where a rate of the right level lies in 99.9 %: the tests are as many, and share the null sets."""
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    half = z * (LEVEL * (1 - LEVEL) * (1 / tests + 1 / null_sets)) ** 0.5
    return LEVEL - half, LEVEL + half


def rate_bound(level: float, runs: int, pool: int = 0) -> float:
    """What the rate of an exact test stays below, except once in a thousand times.

    Args:
        pool: null runs that the tests have in common, whose own error then counts; none at 0.
    """
    from scipy.stats import binom, norm

    if not pool:
        return float(binom.ppf(0.999, runs, level)) / runs
    return level + float(norm.ppf(0.999)) * math.sqrt(level * (1 - level) * (1 / runs + 1 / pool))
