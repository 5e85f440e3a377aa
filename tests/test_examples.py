"""Every example runs, where what it needs is installed."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name):
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")  # of the libraries, and of chains this short
def test_eight_schools(tmp_path, capsys):
    pytest.importorskip("numpyro")
    found = example("eight_schools").main(tmp_path, draws=200)
    assert set(found) == {"NUTS", "mean-field VI"}
    assert "log tau" in found["NUTS"].names
    assert (tmp_path / "NUTS" / "report.html").is_file() and "worth" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore::steincritic.errors.DoubtfulWarning")  # chains this short
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("collinear_regression", "mean field"),
        ("funnel", "the same draws, non-centered"),
        ("label_switching", "a normal fit"),
    ],
)
def test_examples_in_plain_torch(name, wrong, tmp_path, capsys):
    found = example(name).main(tmp_path, draws=300)
    assert found[wrong].rejected and len(found) > 1
    assert all((tmp_path / case / "report.html").is_file() for case in found)
    assert "The lenses decided" in capsys.readouterr().out


def test_cluster_scripts_run_on_this_machine_where_there_is_no_cluster(tmp_path, capsys):
    pytest.importorskip("distributed")
    checked = example("cluster/slurm").main(tmp_path, local=True, n=60)
    assert (tmp_path / "report.html").is_file() and checked.rejected
    tested = example("cluster/kubernetes").main(local=True, n=60)
    assert f"p = {tested.pvalue:.3g}" in capsys.readouterr().out
