"""assert_fits: whether draws fit a model, in one line of a test suite.

The pytest plugin (`integrations.pytest_plugin`) makes it a fixture. This file loads torch when it is called.
"""

import os
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steincritic.data.conditional import Target
    from steincritic.diagnosis.check_result import CheckResult
    from steincritic.gof.choose import TestName
    from steincritic.gof.result import GofResult
    from steincritic.gof.test import GofTest
    from steincritic.gof.tolerance import ToleranceLike
    from steincritic.models.coordinates import Bounds

__all__ = ["assert_fits"]

REPORTS: Path | None = None  # folder of --steincritic-report, where pytest was given one
_DRAWS = 999  # null sets at least
_NAMED_AT = 0.05  # family-wise level of what is listed once the model is rejected
_FINDINGS = 5


def assert_fits(
    model: Any,
    draws: Any,
    level: float = 1e-4,
    *,
    chains: int | None = None,
    test: "GofTest | TestName | None" = None,
    seed: int = 0,
    names: Sequence[str] | None = None,
    target: "Target | None" = None,
    bounds: "Bounds | None" = None,
    tolerance: "ToleranceLike | None" = None,
    report: str | Path | None = None,
) -> "GofResult":
    """Fail unless the draws could come from the model; the message says what is wrong.

    A right model fails with probability `level` at most: the p-value is a rank among datasets that are drawn
    from the model. Where the model cannot be sampled, or draws are chains, the level is approximate. The same
    draws and the same seed give the same answer every time.

    Args:
        model: anything `sc.as_model` takes.
        draws: of the sampler that is on trial, or data: whatever `sc.check` takes.
        chains: draws are in time order and may depend on each other, so many chains of them; 1 also for draws
            by chain or by name, as samplers leave them. Tested as `sc.check_draws` does.
        test: by default quick lenses alone with as many null sets as the level needs. "combined" trains
            critics too: for levels of 0.01 and more, as each null set then takes a training.
        seed: decides every random choice, the null sets among them.
        names, target, bounds, tolerance: as for `sc.check`.
        report: folder for the report, written where the assertion fails.

    >>> import steincritic as sc
    >>> q = sc.models.GaussianMixture([[0.0, 0.0]])
    >>> assert_fits(q, q.sample(100, seed=1), level=0.01)
    GofResult(not rejected at level 0.01: ...)
    """
    __tracebackhide__ = True  # pytest shows the line that called
    from steincritic.diagnosis.check import check
    from steincritic.diagnosis.draws import check_draws
    from steincritic.diagnosis.halves import FEWEST
    from steincritic.errors import DoubtfulWarning
    from steincritic.gof.choose import gof_test

    chosen = test if test is not None or tolerance is not None else _quick(level, seed)
    given: dict[str, Any] = {"seed": seed, "names": names, "target": target, "bounds": bounds}
    found: CheckResult | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # one now and then would make a suite flaky
        if chains is not None:
            _refuse(target=target, bounds=bounds, tolerance=tolerance)
            by = chosen or "combined"
            found = check_draws(model, draws, chains=chains, test=by, level=level, seed=seed, names=names)
            result = found.test
        else:
            result = gof_test(model, draws, chosen, level, tolerance=tolerance, **given)
            if result.rejected and result.n >= FEWEST:
                found = check(model, draws, test=result, level=_NAMED_AT, **given)
    for caveat in result.caveats:
        if caveat.grave and not result.rejected:
            warnings.warn(str(caveat), DoubtfulWarning, stacklevel=2)
    if result.rejected:
        raise AssertionError(_message(result, found, _folder(report)))
    return result


def _refuse(**given: Any) -> None:
    from steincritic.errors import InputError

    if named := [name for name, value in given.items() if value is not None]:
        raise InputError(f"{named[0]} is not for chains: leave it out, or pass independent draws")


def _quick(level: float, seed: int) -> "GofTest":
    from steincritic.gof.combined import Combined
    from steincritic.gof.null import smallest_draws

    return Combined(critics=None, draws=max(_DRAWS, smallest_draws(level)), null_seed=seed)


def _folder(report: str | Path | None) -> Path | None:
    if report is not None or REPORTS is None:
        return None if report is None else Path(report)
    running = os.environ.get("PYTEST_CURRENT_TEST", "assert_fits").rsplit(" ", 1)[0]
    return REPORTS / re.sub(r"[^\w.-]+", "-", running).strip("-")


def _message(result: "GofResult", found: "CheckResult | None", folder: Path | None) -> str:
    """The report in words: verdict, findings, how the test was done, what to do, where the report is."""
    lines = result.summary().splitlines() if found is None else found.reading(found.findings[:_FINDINGS])
    lines += [f"What to do: {_advice(result)}"]
    if folder is not None:
        files = (result if found is None else found).save(folder)
        lines += [f"Report: {files[0]}"]
    return "\n".join(lines)


def _advice(result: "GofResult") -> str:
    rate = f"{'at most' if result.exact else 'about'} one of {1 / result.level:,.0f} runs"
    return (
        f"a right model fails in {rate}, so look for what changed in the model or in what made these draws, "
        "beginning with the first finding. sc.doctor(model) tells whether the score is right. If a "
        "difference of this size does not matter, say so: tolerance=0.05."
    )
