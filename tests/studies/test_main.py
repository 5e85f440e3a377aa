"""python -m studies: what it leaves, and what it refuses in one line."""

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_study_leaves_record_table_and_figures_and_redraws_them_to_the_byte(reproduce, tmp_path):
    code, out, err = reproduce("gm-1d --tiny --device cpu --out shown")
    assert code == 0 and err == ""
    files = contents(tmp_path / "shown")
    assert {"record.json", "table.md"} < set(files) and any(name.endswith(".png") for name in files)
    for name in set(files) - {"record.json"}:
        (tmp_path / "shown" / name).unlink()
    assert reproduce("gm-1d --redraw --out shown")[:2] == (0, out)
    assert contents(tmp_path / "shown") == files
    for line, words in {
        "gm-1d --tiny --out shown": "record.json is there already",
        "gm-2d --redraw --out shown": "is a record of 'gm-1d', not of 'gm-2d'",
    }.items():
        code, _, err = reproduce(line)
        assert code == 2 and words in err and err.count("\n") == 1
    assert reproduce("gm-1d --tiny --device cpu --out shown --overwrite")[0] == 0


@pytest.mark.parametrize(
    ("line", "words"),
    {
        "gm-2": "no study 'gm-2'; did you mean gm-2d? (the studies: adaptive, auto-staging, ",
        "gm-1d --redraw --out nowhere": "no record at nowhere/record.json",
        "gm-1d --tiny --address tcp://x:1": "--address is for --engine dask",
        "gm-1d --tiny --device nonsense": "device 'nonsense' cannot be used here",
    }.items(),
)
def test_what_cannot_be_used_is_refused_in_one_line(reproduce, line, words):
    code, _, err = reproduce(line)
    assert code == 2 and words in err and err.count("\n") == 1


def test_the_list_says_how_long_studies_take(reproduce):
    code, out, _ = reproduce("list")
    assert code == 0 and "20 minutes on two cores" in out
