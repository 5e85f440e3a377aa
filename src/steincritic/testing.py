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
    from steincritic.gof.choose import TestName, ToleranceLike
    from steincritic.gof.result import GofResult
    from steincritic.gof.test import GofTest
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
    from steincritic.errors import DoubtfulWarning, InputError
    from steincritic.gof.choose import gof_test
    from steincritic.gof.combined import Combined
    from steincritic.gof.null import smallest_draws

    if test is None and tolerance is None:
        test = Combined(critics=None, draws=max(_DRAWS, smallest_draws(level)), null_seed=seed)
    options: dict[str, Any] = {"seed": seed, "names": names, "target": target, "bounds": bounds}
    diagnosis: CheckResult | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # one now and then would make a suite flaky
        if chains is not None:
            for name, value in {"target": target, "bounds": bounds, "tolerance": tolerance}.items():
                if value is not None:
                    raise InputError(f"{name} is not for chains: leave it out, or pass independent draws")
            by = test or "combined"
            diagnosis = check_draws(model, draws, chains=chains, test=by, level=level, seed=seed, names=names)
            result = diagnosis.test
        else:
            result = gof_test(model, draws, test, level, tolerance=tolerance, **options)
            if result.rejected and result.n >= FEWEST:
                diagnosis = check(model, draws, test=result, level=_NAMED_AT, **options)
    if result.rejected:
        if report is None and REPORTS is not None:
            running = os.environ.get("PYTEST_CURRENT_TEST", "assert_fits").rsplit(" ", 1)[0]
            report = REPORTS / re.sub(r"[^\w.-]+", "-", running).strip("-")
        raise AssertionError(_message(result, diagnosis, report))
    for caveat in result.caveats:
        if caveat.grave:
            warnings.warn(str(caveat), DoubtfulWarning, stacklevel=2)
    return result


def _message(result: "GofResult", diagnosis: "CheckResult | None", folder: str | Path | None) -> str:
    """The report in words: verdict, findings, how the test was done, what to do, where the report is."""
    if diagnosis is None:
        lines = result.summary().splitlines()
    else:
        lines = diagnosis.reading(diagnosis.findings[:_FINDINGS])
    rate = f"{'at most' if result.exact else 'about'} one of {1 / result.level:,.0f} runs"
    lines.append(
        f"What to do: a right model fails in {rate}, so look for what changed in the model or in what made "
        "these draws, beginning with the first finding. sc.doctor(model) tells whether the score is right. "
        "If a difference of this size does not matter, say so: tolerance=0.05."
    )
    if folder is not None:
        lines.append(f"Report: {(diagnosis or result).save(Path(folder))[0]}")
    return "\n".join(lines)
