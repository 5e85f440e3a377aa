"""witness: the same witness as in Python, whatever the chunks; all of the file or none of it."""

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import steincritic as sc
from steincritic.diagnosis.witness import Summary

X = (sc.models.GaussianMixture([[0.0, 0.0]]).sample(230, seed=1) + 0.5).numpy()
CRITIC = "--critic critic --model models.py:normal"


@pytest.fixture(autouse=True)
def more_data(place):
    np.save("x.npy", X)
    np.savez("x.npz", X)
    np.savetxt("x.csv", X, delimiter=",", fmt="%.17g", header="a,b", comments="")


def rows_of(path):
    header, *lines = csv.reader(Path(path).read_text().splitlines())
    assert [name for name in header if name != "line"] == ["row", "witness", "pvalue", "columns"]
    cells = dict(zip(header, zip(*lines, strict=True), strict=True))
    return np.array(cells["row"], dtype=int), np.array(cells["witness"], dtype=float)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.csv"])
@pytest.mark.parametrize("chunk", [1, 100, 100_000])
def test_the_file_holds_the_witness_of_every_row(run, critic, name, chunk):
    code, out, err = run(f"witness {name} {CRITIC} --out deep/w.csv --chunk {chunk} --json")
    assert code == 0 and err == "" and out.count("\n") == 1
    rows, values = rows_of("deep/w.csv")
    wanted = critic.witness(X).numpy()
    np.testing.assert_array_equal(rows, np.arange(len(X)))
    # rounding of float32 products, whose order depends on the number of rows
    np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-5)
    told = json.loads(out)
    assert told["rows"] == len(X) and told["dropped"] == 0 and len(told["largest"]) == 10
    np.testing.assert_allclose(told["mean"], values.mean(), rtol=1e-7)  # nine digits are written
    np.testing.assert_allclose(told["standard_error"], values.std(ddof=1) / len(X) ** 0.5, rtol=1e-7)
    assert [one["row"] for one in told["largest"][:3]] == np.argsort(-values)[:3].tolist()


def test_parquet_is_scored_like_the_rest(run):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"x1": X[:, 0], "x2": X[:, 1]}), "x.parquet", row_group_size=50)
    for name in ("x.parquet", "x.npy"):
        assert run(f"witness {name} {CRITIC} --out {name}.csv --chunk 50")[0] == 0
    assert Path("x.parquet.csv").read_bytes() == Path("x.npy.csv").read_bytes()


def test_standard_input_is_csv(run, monkeypatch):
    text = Path("x.csv").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    code, out, _ = run(f"witness - {CRITIC} --out w.csv")
    assert code == 0 and out.startswith("standard input under critic: 230 rows")
    assert len(rows_of("w.csv")[0]) == 230


def test_the_summary_names_the_worst_rows(run):
    code, out, err = run(f"witness x.npy {CRITIC}")
    assert code == 0 and err == ""
    assert "Mean witness" in out and "standard error" in out and "Largest" in out
    assert not list(Path().glob("*witness*"))


def test_rows_with_gaps_stop_the_run_or_are_left_out_with_their_numbers_kept(run):
    x = X.copy()
    x[[150, 151], 0] = np.nan
    np.save("gap.npy", x)
    code, out, err = run(f"witness gap.npy {CRITIC} --out w.csv --chunk 100")
    assert code == 2 and out == "" and "in row 150;" in err and "--drop-nan" in err
    assert not Path("w.csv").exists() and not list(Path().glob(".w.csv*"))
    code, out, _ = run(f"witness gap.npy {CRITIC} --out w.csv --chunk 100 --drop-nan --json")
    assert code == 0 and json.loads(out)["rows"] == 228 and json.loads(out)["dropped"] == 2
    rows = rows_of("w.csv")[0]
    assert 150 not in rows and rows[-1] == 229


def test_an_interrupt_leaves_the_old_file_and_nothing_else(run, place, monkeypatch):
    Path("w.csv").write_text("old")

    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("steincritic.files.csv_text", interrupt)
    before = set(place.iterdir())
    assert run(f"witness x.npy {CRITIC} --out w.csv")[0] == 130
    assert Path("w.csv").read_text() == "old" and set(place.iterdir()) == before


def test_the_moments_of_chunks_are_those_of_the_whole():
    values = np.random.default_rng(0).normal(1e6, 1.0, size=1000)
    summary = Summary()
    for part in np.array_split(np.arange(1000), 7):
        summary.add(values[part], {"row": part.tolist(), "witness": values[part].tolist()})
    np.testing.assert_allclose(summary.mean, values.mean(), rtol=1e-12)  # rounding
    error = values.std(ddof=1) / 1000**0.5
    np.testing.assert_allclose(summary.standard_error, error, rtol=1e-8)  # 1e6 spends six of 16 digits
    assert [row["row"] for row in summary.largest] == np.argsort(-values)[:10].tolist()


def test_a_single_row_has_no_standard_error(run):
    np.save("one.npy", X[:1])
    assert json.loads(run(f"witness one.npy {CRITIC} --json")[1])["standard_error"] is None
    assert "standard error none" in run(f"witness one.npy {CRITIC}")[1]


def test_rows_are_ranked_among_draws_of_the_model_and_the_columns_that_contribute_are_named(run):
    far = np.zeros((4, 2))
    far[3, 1] = 6.0
    np.savetxt("far.csv", far, delimiter=",", fmt="%g", header="a,b", comments="")
    told = json.loads(run(f"witness far.csv {CRITIC} --draws 99 --json")[1])["largest"]
    assert all(0.01 <= one["pvalue"] <= 1 for one in told)
    by_row = {one["row"]: one for one in told}
    assert by_row[3]["line"] == 5 and set(by_row[3]["columns"].split("; ")) <= {"a", "b"}
    assert by_row[0]["witness"] == by_row[1]["witness"] and by_row[0]["pvalue"] == by_row[1]["pvalue"]
    told = json.loads(run("witness far.csv --critic critic --model models.py:scores --json")[1])["largest"]
    assert "pvalue" not in told[0]  # of a model that cannot be sampled


def test_ids_and_lines_go_into_the_file(run):
    Path("people.csv").write_text("who,a,b\nanna,1,2\n=cmd,,4\n=bob,0.5,0\n")
    code, *_ = run(f"witness people.csv {CRITIC} --id-column who --drop-nan --out w.csv --json")
    rows = list(csv.DictReader(Path("w.csv").read_text().splitlines()))
    assert code == 0 and [(row["row"], row["line"], row["id"]) for row in rows] == [
        ("0", "2", "anna"),
        ("2", "4", "'=bob"),  # which no spreadsheet takes for a formula
    ]
