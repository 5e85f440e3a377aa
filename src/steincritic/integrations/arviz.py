"""Results as a group of ArviZ: the witness of every draw beside chain and draw."""

import math
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from steincritic.errors import InputError

if TYPE_CHECKING:
    from steincritic.diagnosis.check_result import CheckResult

GROUP = "steincritic"


def to_arviz(result: "CheckResult", onto: Any = None) -> Any:
    """The result as a DataTree, or as one more group, `steincritic`, of what ArviZ has already.

    Variables are `witness` and, where the model can be sampled, `pvalue`, each (chain, draw): a large witness
    says that a draw is where the posterior hardly is. The attributes hold verdict, p-value and findings.
    `draw` counts as the sampler does: where draws in a row depend on each other, points are found among some.

    Args:
        result: of `sc.check_draws`; that of `sc.check` is one chain, its rows the draws.
        onto: an InferenceData or a DataTree; a copy of it with the group is returned.
    """
    dataset = _dataset(result)
    if onto is None:
        return _xarray().DataTree.from_dict({GROUP: dataset})
    if hasattr(onto, "add_groups"):  # InferenceData
        joined = onto.copy()
        joined.add_groups({GROUP: dataset}, warn_on_custom_groups=False)
        return joined
    if not hasattr(onto, "to_dict") or not hasattr(onto, "children"):
        raise InputError(f"onto must be an InferenceData or a DataTree, got {type(onto).__name__}")
    return type(onto).from_dict(onto.to_dict() | {f"/{GROUP}": dataset})


def _dataset(result: "CheckResult") -> Any:
    points, tested = result.points, result.test
    mixing = tested.settings.get("mixing", {"chains": 1})
    chains = mixing["chains"]
    values = {"witness": points.witness} | ({} if points.pvalues is None else {"pvalue": points.pvalues})
    shaped = {name: (("chain", "draw"), v.cpu().numpy().reshape(chains, -1)) for name, v in values.items()}
    draws = _kept(mixing, len(points.witness) // chains)
    about = {
        "verdict": tested.verdict,
        "pvalue": tested.pvalue,
        "level": tested.level,
        "rejected": int(tested.rejected),  # netCDF knows no truth values
        "findings": "\n".join(result.findings),
        "rhat": mixing.get("rhat", float("nan")),
        "effective_draws": mixing.get("effective", float(len(points.witness))),
    }
    return _xarray().Dataset(shaped, coords={"chain": range(chains), "draw": draws}, attrs=about)


def _kept(mixing: Mapping[str, Any], count: int) -> list[int]:
    """Numbers of the draws that points were found among: all, every so many, or those that depend little."""
    thin, slowness = mixing.get("thin", 1), mixing.get("slowness", 1.0)
    step = thin * math.ceil(slowness)
    few = -(-mixing.get("draws", count) // step) != count  # too few for that: all tested ones
    return [(thin if few else step) * k for k in range(count)]


def _xarray() -> Any:
    try:
        return import_module("xarray")
    except ModuleNotFoundError:
        raise InputError("this needs xarray, which comes with ArviZ: pip install arviz") from None
