"""Benchmarks start, and what they compute from their records is right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import peers

    return peers


def test_growth_is_the_exponent(peers):
    rows = [{"way": "w", "along": "rows", "rows": n, "seconds": 1e-5 * n**2} for n in (10, 100, 1000, 10_000)]
    assert peers.growth(rows, "rows")["w"] == pytest.approx(2)
    assert peers.growth(rows[:1], "rows") == {}


def test_a_peer_that_is_not_installed_is_left_out(peers, monkeypatch):
    import peer_ways

    monkeypatch.setattr(peer_ways, "find_spec", lambda name: None if name == "hyppo" else name)
    ways = {case["way"] for case in peers.cases(peers.TINY, 5, 4)}
    assert "hyppo, FSSD" not in ways and "steincritic, KSD" in ways


def test_our_ways_find_a_plain_fault(peers):
    import peer_ways

    wrong = peers.data(200, 2, 1, shift=1.0)
    assert peer_ways.WAYS["steincritic, KSD"].test(wrong, 0) <= 0.05
    assert peer_ways.WAYS["scikit-learn, logistic"].test(wrong, 0) <= 0.05


def test_limits_runs(tmp_path):
    out = tmp_path / "limits.json"
    command = [sys.executable, "-W", "ignore", str(FOLDER / "limits.py"), "--tiny", "--out", str(out)]
    subprocess.run(command, check=True, env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"})
    found = json.loads(out.read_text())["results"]
    assert len(found["rows"]) == 6 and all(row["seconds"] >= 0 for row in found["rows"])
