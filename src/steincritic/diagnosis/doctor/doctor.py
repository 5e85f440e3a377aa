"""doctor: is the model adapter right? Asked before any test is trusted.

A wrong score makes every test of a good model reject, and nothing in the p-value says why. `doctor`
asks the model the questions whose answers are known: the score is the gradient of the log-density,
E_q[T_q f] = 0 on the model's own draws, and rows, seeds, dtypes and devices do not matter.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.distributions import Distribution

from steincritic.data.arrays import as_points
from steincritic.data.conditional import Target, at_rows
from steincritic.data.points import PointsLike, ScoredPoints, arranged, row_names, within_bounds
from steincritic.data.tables import load_table
from steincritic.devices import DeviceLike, resolve_device
from steincritic.diagnosis.doctor import answers, own_draws
from steincritic.diagnosis.doctor.patient import Patient, Status, Verdict, draw, generators_restored
from steincritic.display import panel
from steincritic.errors import InputError, ModelError, check_count
from steincritic.files import json_fields, write_json
from steincritic.models.base import Model, ModelLike, SamplingModel, as_model, dimension
from steincritic.models.bounded import coordinates_of, unbounded
from steincritic.models.conditional import AtRows
from steincritic.models.coordinates import Bounds, entered
from steincritic.models.density import DistributionModel
from steincritic.shapes import Points, counted


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    status: Status
    detail: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Checkup:
    """All that the doctor found about one model."""

    checks: tuple[Finding, ...]
    n: int  # model draws looked at
    seed: int

    JSON_FIELDS: ClassVar = ("ok", "n", "seed", "checks")

    @property
    def ok(self) -> bool:
        """Nothing failed; doubts may remain."""
        return not self._of("failed")

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What failed, then warnings."""
        return (*self._of("failed"), *self._of("warning"))

    @property
    def problem_lines(self) -> list[str]:
        """The same in sentences, for the result of a test of this model."""
        return [f"About the model: {problem.detail}" for problem in self.problems]

    def summary(self) -> str:
        """The verdict in sentences: first what failed, then warnings."""
        failed, doubtful = self._of("failed"), self._of("warning")
        passed = len(self._of("passed"))
        verdict = "The adapter cannot be trusted yet" if failed else "No evidence against the adapter"
        lines = [f"{verdict}: {len(failed)} failed, {counted(len(doubtful), 'warning')}, {passed} passed."]
        problems = (f"{f.name} ({f.status}): {f.detail}" for f in self.problems)
        return "\n".join([*lines, *problems])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return json_fields(self, self.JSON_FIELDS)

    def _repr_html_(self) -> str:
        rows = [(f.name, f.status, f.detail) for f in (*self.problems, *self._of("passed"))]
        return panel(self.summary().splitlines()[:1], rejected=not self.ok, rows=rows, head=_COLUMNS)

    def __repr__(self) -> str:
        return f"Checkup({self.summary().splitlines()[0]})"

    def save(self, folder: str | Path) -> list[Path]:
        """Write checkup.json into the folder; returns the files."""
        path = Path(folder) / "checkup.json"
        write_json(path, self.to_dict())
        return [path]

    def _of(self, status: Status) -> list[Finding]:
        return [finding for finding in self.checks if finding.status == status]


def doctor(
    model: ModelLike,
    x: PointsLike | None = None,
    *,
    n: int | None = None,
    seed: int = 0,
    device: DeviceLike = None,
    bounds: Bounds | None = None,
    target: Target | None = None,
) -> Checkup:
    """Check a model before its tests are trusted.

    Args:
        model: anything `as_model` takes.
        x: data that will be tested, in any form that `gof_test` takes; needed where the model cannot
            be sampled, and one more place to look at where it can.
        n: model draws for Stein's identity. By default 50,000, fewer beyond 20 dimensions, and fewer
            where drawing and scoring them would take longer than about five seconds.
        seed: decides every random choice.
        device: of the data; where the model draws is its own choice.
        bounds: where the model ends, as for `gof_test`; it is then looked at in coordinates without bounds.
        target: the columns of y in x, where the model is that of y given the others.

    >>> from steincritic.models import GaussianMixture, PairModel
    >>> q = GaussianMixture([[0.0, 0.0]])
    >>> doctor(q, n=2_000).ok
    True
    >>> wrong = PairModel(lambda x: -q.score(x), lambda n, seed: q.sample(n, seed=seed))
    >>> [f.name for f in doctor(wrong, n=2_000).checks if f.status == "failed"]
    ["Stein's identity"]
    """
    if target is not None:
        if x is None:
            raise InputError("a conditional model is looked at where the data are: pass x (--data FILE)")
        return _at_rows(at_rows(model, x, target)[0], seed)
    table: Any = load_table(x) if isinstance(x, str | Path) else x
    try:
        adapted = as_model(model)
    except InputError:
        if not isinstance(model, Distribution):
            raise
        adapted = DistributionModel(model)  # one that cannot be tested can be looked at all the same
    if bounds is not None:
        adapted = within_bounds(adapted, bounds, None if x is None else arranged(table, adapted))
    if n is not None:
        check_count(n, name="n", least=500)
    resolve_device(device, torch.empty(0))  # refuses one that is not there
    data = None
    if x is not None:
        within, data = coordinates_of(adapted), arranged(table, adapted)
        points = data.x if isinstance(data, ScoredPoints) else as_points(data, dim=dimension(adapted))
        if within is not None:
            points = entered(within, points, getattr(data, "columns", None), row_names(data))
        data = points.detach().to(points.device if device is None else resolve_device(device, points))
    adapted = unbounded(adapted)
    if data is None and not isinstance(adapted, SamplingModel):
        raise InputError(
            "the model has no sample(n, seed=0), so there are no points to look at: pass x, data that you "
            "will test (on the command line --data FILE)"
        )
    with generators_restored():
        draws, sampling = draw(adapted, n, seed, data)
        checks = [Finding(_SEEDED, *sampling)]
        if draws is not None or data is not None:
            patient = Patient(model=adapted, draws=draws, data=data, seed=seed)
            checks += _asked(_CHECKS, patient)
    return Checkup(checks=tuple(checks), n=0 if draws is None else len(draws), seed=seed)


def glance(model: Model | None, x: Points, *, seed: int) -> Checkup:
    """The checks of `doctor` that take milliseconds, for a test that is on its way."""
    if model is None:
        return Checkup(checks=(), n=0, seed=seed)
    if isinstance(model, AtRows):
        return _at_rows(model, seed)
    with generators_restored():
        draws, sampling = draw(model, _GLANCE, seed, x)
        patient = Patient(model=model, draws=draws, data=x[:_GLANCE], seed=seed)
        checks = Finding(_SEEDED, *sampling), *_asked(_AT_A_GLANCE, patient)
    return Checkup(checks=checks, n=_GLANCE, seed=seed)


def _at_rows(model: AtRows, seed: int) -> Checkup:
    with generators_restored():
        return Checkup(checks=tuple(_asked(own_draws.AT_ROWS, model, seed)), n=len(model), seed=seed)


def _asked(checks: Mapping[str, Callable[..., Verdict]], *about: Any) -> Iterator[Finding]:
    """What each check finds; without a score there is nothing more to ask."""
    for name, check in checks.items():
        try:
            status, detail = check(*about)
        except ModelError as error:
            status, detail = "failed", f"{error}."
        yield Finding(name, status, detail)
        if name == "shape" and status == "failed":
            return


_CHECKS: dict[str, Callable[[Patient], Verdict]] = {
    "shape": answers.check_shape,
    "finite values": answers.check_finite_values,
    "rows by themselves": answers.check_rows,
    "dtypes": answers.check_dtypes,
    "device": answers.check_device,
    "continuous columns": answers.check_columns,
    "sign of the score": answers.check_sign,
    "score and log-density": answers.check_gradient,
    "independent draws": own_draws.check_independence,
    "Stein's identity": own_draws.check_identity,
    "edges of the support": own_draws.check_edges,
    "one space": own_draws.check_space,
}
_SEEDED = "seeded sampling"
_COLUMNS = "check", "status", "what was seen"
_AT_A_GLANCE = {
    name: _CHECKS[name]
    for name in ("rows by themselves", "score and log-density", "independent draws", "Stein's identity")
}
_GLANCE = 1_000  # draws and data
