"""Results in experiment trackers: a logger is a function of a name and a result."""

import re
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from steincritic.errors import InputError

if TYPE_CHECKING:
    from steincritic.diagnosis.check_result import CheckResult
    from steincritic.gof.result import GofResult

    Result: TypeAlias = CheckResult | GofResult

_NUMBERS = ("pvalue", "statistic", "level", "fisher_lower_bound", "fisher_estimate")


class Logger(Protocol):
    """What a result is told to: `to_mlflow`, `to_wandb`, or a function of your own."""

    def __call__(self, name: str, result: "Result", *, step: int | None = None) -> None: ...


def to_mlflow(name: str, result: "Result", *, step: int | None = None) -> None:
    """Log a result to the active MLflow run, or to a new one: metrics, the verdict as a tag, the report.

    Metrics are `name/pvalue` and so on, the tag is `name.verdict`, files are in the folder `name`.
    """
    mlflow = _outside("mlflow")
    mlflow.log_metrics({f"{name}/{key}": value for key, value in numbers(result).items()}, step=step)
    mlflow.set_tag(f"{name}.verdict", verdict(result))
    place = name if step is None else f"{name}/{step}"
    _with_files(result, lambda folder: mlflow.log_artifacts(folder, artifact_path=place))


def to_wandb(name: str, result: "Result", *, step: int | None = None) -> None:
    """Log a result to the active run of Weights & Biases: metrics, the verdict, the report as an artifact."""
    wandb = _outside("wandb")
    if wandb.run is None:
        raise InputError("there is no run to log to: call wandb.init() first")
    wandb.run.log({f"{name}/{key}": value for key, value in numbers(result).items()}, step=step)
    wandb.run.summary[f"{name}/verdict"] = verdict(result)
    artifact = wandb.Artifact(re.sub(r"[^\w.-]", "-", name), type="steincritic", description=verdict(result))
    _with_files(result, artifact.add_dir)
    wandb.run.log_artifact(artifact)


def numbers(result: "Result") -> dict[str, float]:
    """What is worth a curve."""
    fields = result.to_dict()
    shown = {key: float(fields[key]) for key in _NUMBERS if key in fields}
    return shown | {"rejected": float(fields["rejected"]), "findings": float(len(fields.get("findings", ())))}


def verdict(result: "Result") -> str:
    """In a sentence."""
    tested: Any = getattr(result.test, "verdict", None)  # of a CheckResult the test is a result, too
    return str(tested or getattr(result, "verdict", ""))


def _with_files(result: "Result", take: Callable[[str], Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder))
        (Path(folder) / "summary.txt").write_text(f"{result.summary()}\n", "utf-8")
        take(folder)


def _outside(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise InputError(f"this needs {module}: pip install {module}") from None
