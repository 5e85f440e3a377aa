"""λ, the weight of ½E‖f‖², through training: values, one per bank member.

A staging answers two questions: where to begin, and where to go after every `every` batches. The
trainer asks both of any staging and never which kind it holds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from steincritic.errors import InputError, check_choice, check_count, check_positive

Quantity = Literal["monitor", "mse_p"]
Observe = Callable[[Quantity], float]  # the member's value of a quantity, computed when asked for


@dataclass(frozen=True)
class Stage:
    """Where a member stands; plain numbers, so that a checkpoint can hold it."""

    lam: float
    index: int = 0
    last: float = math.inf  # the last observation
    improved: bool = False  # has an observation fallen since λ was last lowered?

    def __post_init__(self) -> None:
        check_positive(self.lam, name="lambda")
        check_count(self.index, name="stage", least=0, most=2**53)
        if not isinstance(self.last, int | float):
            raise InputError(f"the last observation must be a number, got {self.last!r}")


class Staging(Protocol):
    @property
    def every(self) -> int | None:
        """Batches between two calls of `advance`; None is one epoch."""
        ...

    def begin(self) -> Stage: ...

    def advance(self, stage: Stage, observe: Observe) -> Stage: ...


@dataclass(frozen=True, kw_only=True)
class _Falling:
    """From an initial λ down to a floor, each time by the same factor."""

    initial: float
    floor: float
    decay: float
    every: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.initial, name="lambda (initial)")
        check_positive(self.floor, name="lambda (floor)")
        if self.floor > self.initial:
            raise InputError(
                f"the floor of lambda must not exceed its initial value: {self.floor} > {self.initial}"
            )
        if not 0 < self.decay <= 1:
            raise InputError(f"decay multiplies lambda, so it lies in (0, 1]: got {self.decay}")
        if self.every is not None:
            check_count(self.every, name="every (batches)")

    def begin(self) -> Stage:
        return Stage(self.initial)


@dataclass(frozen=True, kw_only=True)
class Staged(_Falling):
    """λ at stage k is max(floor, initial * decay**k), [repasky2023] eq. (15).

    >>> [round(Staged(initial=1.0, floor=0.3, decay=0.5).at(k), 3) for k in range(4)]
    [1.0, 0.5, 0.3, 0.3]
    """

    def at(self, index: int) -> float:
        return max(self.floor, self.initial * self.decay**index)

    def advance(self, stage: Stage, observe: Observe) -> Stage:
        return Stage(self.at(stage.index + 1), stage.index + 1)


def fixed(lam: float) -> Staged:
    """The same λ throughout: a staging that does not decay."""
    return Staged(initial=lam, floor=lam, decay=1.0)


@dataclass(frozen=True, kw_only=True)
class Adaptive(_Falling):
    """Lower λ when an observed error rises, [repasky2023] appendix B.5.

    After every stage the error must first fall once before its next rise lowers λ again. The error is
    the validation monitor, or the true MSE_p where p is known.
    """

    on: Quantity = "monitor"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.on, name="on", choices=("monitor", "mse_p"))

    def advance(self, stage: Stage, observe: Observe) -> Stage:
        error = observe(self.on)
        if stage.improved and error > stage.last:
            lam = max(self.floor, stage.lam * self.decay)
            return Stage(lam, stage.index + 1, last=error, improved=False)
        fell = error < stage.last < math.inf
        return replace(stage, last=error, improved=stage.improved or fell)
