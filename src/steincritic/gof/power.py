"""Many tests to one rejection rate, with its interval."""

import math
from dataclasses import dataclass
from statistics import NormalDist


@dataclass(frozen=True)
class Rate:
    """Rejections among independent tests."""

    rejections: int
    trials: int

    @property
    def value(self) -> float:
        return self.rejections / self.trials

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Wilson's interval, which stays inside [0, 1] and is right near its ends.

        >>> tuple(round(end, 3) for end in Rate(0, 100).interval())
        (0.0, 0.037)
        """
        z = NormalDist().inv_cdf(0.5 + confidence / 2)
        n, p = self.trials, self.value
        center = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, center - half), min(1.0, center + half)

    def __add__(self, other: "Rate") -> "Rate":
        return Rate(self.rejections + other.rejections, self.trials + other.trials)
