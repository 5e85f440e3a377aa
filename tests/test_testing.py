"""assert_fits, alone and in pytest: it passes and fails as it should, and says what is wrong."""

import os
import subprocess
import sys
import warnings
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

import steincritic as sc
from steincritic.testing import assert_fits

Q = sc.models.GaussianMixture([[0.0, 0.0]])
SOURCE = str(Path(sc.__file__).parents[1])
PLUGIN = "steincritic.integrations.pytest_plugin"


class ByScore:
    """The same model without a sampler."""

    dim = 2

    def score(self, x):
        return -x


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_right_model_passes_and_the_result_is_returned():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = assert_fits(Q, Q.sample(100, seed=1))
    assert not result.rejected and result.exact and result.level == 1e-4
    assert len(result.null_distribution) < 9_999  # stopped early


def test_a_wrong_sampler_fails_with_the_report_in_words(tmp_path):
    x = Q.sample(200, seed=1) * torch.tensor([1.0, 2.0])
    with pytest.raises(AssertionError) as failed:
        assert_fits(Q, x, level=1e-3, names=["height", "age"], report=tmp_path / "report")
    lines = str(failed.value).splitlines()
    assert lines[0].startswith("The data do not look like draws from the model (p <= 0.001")
    assert any(line.startswith("age spreads ") for line in lines)
    assert "at most one of 1,000 runs" in lines[-2] and lines[-2].startswith("What to do: ")
    assert lines[-1] == f"Report: {tmp_path / 'report' / 'report.html'}"
    assert (tmp_path / "report/report.html").exists()


@pytest.mark.parametrize(("factor", "fails"), [(1.0, False), (1.6, True)])
def test_scores_alone_and_chains_will_do(factor, fails):
    x = factor * Q.sample(400, seed=2)
    for given in ({"model": ByScore()}, {"model": ByScore(), "chains": 2}):
        try:
            assert not assert_fits(draws=x, level=0.01, **given).exact and not fails
        except AssertionError as failed:
            assert fails and "about one of 100 runs" in str(failed)


def test_few_points_fail_without_a_search_for_where(tmp_path):
    with pytest.raises(AssertionError, match="What to do"):
        assert_fits(Q, Q.sample(8, seed=1) + 5.0, level=1e-3, report=tmp_path / "few")
    assert [file.name for file in (tmp_path / "few").iterdir()] == ["result.json"]


def test_what_chains_do_not_have_is_refused():
    with pytest.raises(sc.InputError, match="tolerance is not for chains"):
        assert_fits(Q, Q.sample(50, seed=1), chains=1, tolerance=0.05)


def test_a_tolerance_is_asked_for_as_elsewhere():
    x = 1.02 * Q.sample(3000, seed=5)
    assert assert_fits(Q, x, level=0.01, tolerance=0.2).tolerance is not None


SUITE = """
import sys
import steincritic as sc
TORCH_AT_START = "torch" in sys.modules

def test_start():
    assert not TORCH_AT_START

def test_right(assert_fits):
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    assert_fits(q, q.sample(50, seed=1), level=0.01, test="ksd")

def test_wrong(assert_fits):
    q = sc.models.GaussianMixture([[0.0, 0.0]])
    assert_fits(q, q.sample(50, seed=1) + 2.0, level=0.01, test="ksd")
"""


@pytest.mark.parametrize("asked", [True, False])
def test_the_plugin_gives_a_fixture_and_an_option_and_loads_no_torch(tmp_path, asked):
    (tmp_path / "test_suite.py").write_text(SUITE)
    known = {point.value for point in entry_points(group="pytest11")}
    line = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "temp")]
    line += [] if PLUGIN in known else ["-p", PLUGIN]
    line += ["--steincritic-report", "reports"] if asked else []
    done = subprocess.run(
        [*line, "test_suite.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "The data do not look like draws from the model" in done.stdout
    assert "def gof_test" not in done.stdout  # the traceback ends at the line of the suite
    place = "reports/test_suite.py-test_wrong" if asked else "temp/test_wrong0/report"
    assert (tmp_path / place / "report.html").exists(), done.stdout


@pytest.mark.slow
def test_the_level_holds_and_a_small_fault_is_seen():
    """400 runs at 5 %: 3 to 44 failures but once in a million (binomial)."""

    def failures(factor):
        failed = 0
        for seed in range(400):
            try:
                assert_fits(Q, factor * Q.sample(50, seed=10_000 + seed), level=0.05, seed=seed)
            except AssertionError:
                failed += 1
        return failed

    assert 3 <= failures(1.0) <= 44 < failures(1.3)
