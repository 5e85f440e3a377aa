"""How large what is wrong is, in one sentence: with many rows a harmless fault is significant too."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from steincritic.diagnosis.findings import Finding
from steincritic.gof.result import DATA, Subject


class _Scale(NamedTuple):
    """How a difference of a kind is measured, and from where on it is moderate and large."""

    of: Callable[[float, float], float]  # estimate and what the model says
    moderate: float
    large: float


def _apart(value: float, expected: float) -> float:
    return abs(value - expected)


def _ratio(value: float, expected: float) -> float:
    return abs(math.log(max(value, 1e-12) / max(expected, 1e-12)))


_MEANS, _SPREADS = _Scale(_apart, 0.2, 0.5), _Scale(_ratio, math.log(1.1), math.log(1.35))
_CORRELATIONS, _SHAPES = _Scale(_apart, 0.1, 0.3), _Scale(_apart, 0.3, 1.0)
_ROWS = _Scale(_apart, 0.01, 0.05)  # shares of all rows
_SCALES = {
    "shift": _MEANS,
    "shift, all alike": _MEANS,
    "spread": _SPREADS,
    "scale": _SPREADS,
    "wide direction": _SPREADS,
    "narrow direction": _SPREADS,
    "pair": _CORRELATIONS,
    "bend": _CORRELATIONS,
    "skewness": _SHAPES,
    "tails": _ROWS,
    "tails, all alike": _ROWS,
    "radial tails": _ROWS,
    "extreme together": _ROWS,
    "cell": _ROWS,
}

_NARROW = 0.005  # intervals that need four digits
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def size_sentence(seen: Sequence[Finding], n: int, subject: Subject = DATA) -> str:
    """Of the largest difference that was measured; nothing where none was."""
    sized = [(finding, *size) for finding in seen if (size := _size(finding, n)) is not None]
    if not sized:
        return ""
    finding, _, word = max(sized, key=lambda one: one[1])
    if (phrase := _phrase(finding, subject)) is not None:
        return f"The largest difference is {word}: {phrase}."
    return f"The largest difference is {word}, the {_ORDINALS[list(seen).index(finding)]} of the findings."


def _size(finding: Finding, n: int) -> tuple[float, str] | None:
    """In parts of what is large of its kind, and in a word."""
    kind, by, _ = finding.kind.removesuffix(" within a mode").partition(" by ")
    scale = None if by and kind == "shift" else _SCALES.get(kind)  # of y over x: in the units of y
    if scale is None or finding.estimate is None or finding.interval is None or finding.expected is None:
        return None
    if finding.interval[0] <= finding.expected <= finding.interval[1]:
        return None
    rows = n if finding.kind == "cell" else 1
    found = scale.of(finding.estimate / rows, finding.expected / rows)
    word = "small" if found < scale.moderate else "moderate" if found < scale.large else "large"
    return found / scale.large, word


def _phrase(finding: Finding, subject: Subject) -> str | None:
    """A mean or a spread in a few words; None where only the finding's own sentence says it."""
    if finding.kind not in ("shift", "spread") or subject is not DATA:
        return None
    assert finding.estimate is not None and finding.interval is not None
    few = abs(finding.interval[1] - finding.interval[0]) < _NARROW
    value, low, high = (f"{v:.4f}" if few else _digits(v) for v in (finding.estimate, *finding.interval))
    if finding.kind == "shift":
        return f"the mean of {finding.names[0]} is off by {value} of a standard deviation ({low} to {high})"
    return f"{finding.names[0]} spreads {value} times as much as the model says ({low} to {high})"


def _digits(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 0.1 else f"{value:.2f}"
