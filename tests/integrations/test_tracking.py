"""Results in trackers: what stand-ins of MLflow and W&B are told."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import steincritic as sc
from steincritic.integrations import to_mlflow, to_wandb

Q = sc.models.GaussianMixture([[0.0, 0.0]])
FILES = {"report.html", "result.json", "witness.csv", "critic.safetensors", "summary.txt"}
NUMBERS = {"pvalue", "statistic", "level", "rejected", "fisher_lower_bound", "fisher_estimate", "findings"}


@pytest.fixture(scope="module")
def result():
    return sc.check(Q, Q.sample(60, seed=1) + 1.5, test="ksd")


class Told:
    """Remembers what it was told."""

    def __init__(self):
        self.metrics, self.tags, self.files, self.steps = {}, {}, set(), []

    def log_metrics(self, metrics, step=None):
        self.metrics |= metrics
        self.steps.append(step)

    def set_tag(self, name, value):
        self.tags[name] = value

    def log_artifacts(self, folder, artifact_path):
        self.files |= {f"{artifact_path}/{file.name}" for file in Path(folder).iterdir()}


def test_mlflow_is_told_numbers_verdict_and_files(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", told := Told())
    to_mlflow("fit", result, step=7)
    assert set(told.metrics) == {f"fit/{name}" for name in NUMBERS} and told.steps == [7]
    assert told.metrics["fit/rejected"] == 1.0 and told.metrics["fit/pvalue"] == result.test.pvalue
    assert told.tags == {"fit.verdict": result.test.verdict}
    assert told.files == {f"fit/7/{name}" for name in FILES}


def test_the_result_of_a_test_alone_will_do(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", told := Told())
    to_mlflow("fit", result.test)
    assert told.files == {"fit/result.json", "fit/summary.txt"} and "fit/fisher_estimate" not in told.metrics
    assert told.tags == {"fit.verdict": result.test.verdict}


def test_wandb_is_told_the_same(result, monkeypatch):
    told = SimpleNamespace(logged=[], artifacts=[], summary={})
    run = SimpleNamespace(
        log=lambda metrics, step: told.logged.append((metrics, step)),
        summary=told.summary,
        log_artifact=told.artifacts.append,
    )

    class Artifact(SimpleNamespace):
        def add_dir(self, folder):
            self.files = {file.name for file in Path(folder).iterdir()}

    artifact = lambda name, **about: Artifact(name=name, **about)  # noqa: E731
    wandb = SimpleNamespace(run=run, Artifact=artifact)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    to_wandb("my fit", result)
    ((metrics, step),) = told.logged
    assert set(metrics) == {f"my fit/{name}" for name in NUMBERS} and step is None
    assert told.summary == {"my fit/verdict": result.test.verdict}
    assert told.artifacts[0].name == "my-fit" and told.artifacts[0].files == FILES
    wandb.run = None
    with pytest.raises(sc.InputError, match=r"wandb\.init"):
        to_wandb("fit", result)


@pytest.mark.parametrize(("log", "name"), [(to_mlflow, "mlflow"), (to_wandb, "wandb")])
def test_a_missing_library_is_named_with_the_way_to_get_it(log, name, result, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(sc.InputError, match=f"pip install {name}"):
        log("fit", result)
